// Notices a rank of this node that is stopped before it has been at the store, where the others
// wait for it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
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
  ~StoppedRankWatch();
  StoppedRankWatch(const StoppedRankWatch&) = delete;
  StoppedRankWatch& operator=(const StoppedRankWatch&) = delete;

 private:
  void watch(const LaunchOrigin& origin, std::chrono::milliseconds limit);

  std::mutex mutex_;
  std::condition_variable ended_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace torchbridge::train
