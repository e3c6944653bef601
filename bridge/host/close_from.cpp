#include "bridge/host/close_from.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace torchbridge {

void close_from(int first) {
  constexpr long kMost = 65536;
  if (syscall(SYS_close_range, first, ~0U, 0) == 0) return;
  const long end = std::min(sysconf(_SC_OPEN_MAX), kMost);
  for (int descriptor = first; descriptor < end; ++descriptor) close(descriptor);
}

}  // namespace torchbridge
