#include "bridge/host/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

namespace torchbridge {

bool open_standard_streams() {
  for (;;) {
    const int descriptor = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (descriptor < 0) return false;
    if (descriptor > STDERR_FILENO) return close(descriptor) == 0;
    fcntl(descriptor, F_SETFD, 0);
  }
}

}  // namespace torchbridge
