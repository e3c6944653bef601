// One worker of an attempt, as its agent records it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

namespace torchbridge {

struct WorkerProcess {
  int local_rank = 0, rank = 0;
  std::string error_file, error_log;  // TORCHELASTIC_ERROR_FILE and stderr.log; empty: none
  pid_t pid = 0;                      // 0: not started
  bool is_running = false;
  bool is_stopped = false;  // by SIGSTOP and the like, and not yet continued
  // Of one that has ended:
  int wait_status = 0;                               // as waitpid gives it
  std::chrono::system_clock::time_point time;        // when it was seen to end
  std::chrono::system_clock::time_point not_before;  // and when at the earliest it ended
  bool is_ended_by_agent = false;                    // by a signal that the agent sent
  // When the agent had asked it to end before.
  std::optional<std::chrono::system_clock::time_point> signalled;
  // Why the agent ended it: what --health-check or the exit barrier gave; or empty.
  std::string health;
};

}  // namespace torchbridge
