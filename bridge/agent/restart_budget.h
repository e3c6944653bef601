// The restarts that a run has used, kept in a file so that an agent that is killed and started
// again does not begin anew.
#pragma once

#include <string>

#include "bridge/base/result.h"
#include "bridge/net/socket.h"
#include "bridge/run_values/run_options.h"

namespace torchbridge {

// LOGDIR/<run id>.restarts, where --log-dir and --rdzv-id are given; without these two a later
// agent cannot know that it continues a run, and nothing is written. The file goes when the agent
// ends by itself: who starts the run once more then has seen how it ended. Two agents of one id at
// a time: the second has no file. One whose guardian was killed is waited for, as it is ending its
// workers. The file holds "<restarts> <pid of the guardian>".
class RestartBudget {
 public:
  // An error names a file that cannot be read or written, or that has something else than a number.
  static Result<RestartBudget> open(const RunOptions& options, int guardian_pid);

  int used() const { return used_; }
  Status use_one();
  void remove();

 private:
  Status write() const;
  std::string path_;  // empty where nothing is kept
  Socket file_;       // locked
  int used_ = 0;
  int guardian_pid_ = 0;
};

}  // namespace torchbridge
