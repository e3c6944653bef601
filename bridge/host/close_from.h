// Closes what a forked process has inherited.
#pragma once

namespace torchbridge {

// All descriptors from `first` on. Before Linux 5.9 those below 65,536: a limit may be billions.
void close_from(int first);

}  // namespace torchbridge
