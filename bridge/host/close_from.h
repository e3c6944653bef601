// Closes what a forked process has inherited.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace torchbridge {

// All descriptors from `first` on. Before Linux 5.9 those below 65,536: a limit may be billions.
inline void close_from(int first) {
  constexpr long kMost = 65536;
  if (syscall(SYS_close_range, first, ~0U, 0) == 0) return;
  const long end = std::min(sysconf(_SC_OPEN_MAX), kMost);
  for (int descriptor = first; descriptor < end; ++descriptor) close(descriptor);
}

}  // namespace torchbridge
