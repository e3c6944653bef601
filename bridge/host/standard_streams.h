// The descriptors 0, 1 and 2 of this process.
#pragma once

#include <fcntl.h>
#include <unistd.h>

namespace torchbridge {

// Where the caller has closed one (`>&-`), /dev/null takes its place, also for what this process
// starts: else the next file, socket or lock would be it, and whatever prints would write to that.
// False, with errno, where /dev/null does not open.
inline bool open_standard_streams() {
  for (;;) {
    const int descriptor = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (descriptor < 0) return false;
    if (descriptor > STDERR_FILENO) return close(descriptor) == 0;
    fcntl(descriptor, F_SETFD, 0);
  }
}

}  // namespace torchbridge
