// Notices a rank of this node that is stopped before it has been at the store, where the others
// wait for it.
#pragma once

#include <chrono>
#include <thread>

#include "bridge/launch/launch_origin.h"

namespace torchbridge::train {

// While it lives, this process ends with exit code 1 once another rank of its node has been stopped
// (SIGSTOP) for `limit`; the first rank of the node that finds it prints a message. A rank that
// only starts slowly is not stopped. The ranks of a node are the children of one process of mpirun
// or Slurm, or below them where scripts start the ranks; without such a process it does nothing.
class StoppedRankWatch {
 public:
  StoppedRankWatch(const LaunchOrigin& origin, std::chrono::milliseconds limit);

 private:
  std::jthread thread_;
};

}  // namespace torchbridge::train
