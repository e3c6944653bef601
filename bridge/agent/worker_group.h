// The workers of one attempt: started together, signalled together, each with how it ended.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "bridge/agent/process.h"

namespace torchbridge {

struct Worker {
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
  std::string health;                                // why the agent ended it: what --health-check gave; or empty
};

// Passive: whoever owns it waits for SIGCHLD and for time. One thread.
class WorkerGroup {
 public:
  std::optional<StartFailure> start(Worker worker, const ProcessSpec& spec);

  // What happened to the workers since the last call.
  struct Changes {
    std::vector<const Worker*> ended, stopped, continued;
  };
  Changes reap();

  // To the process group of each that runs.
  void signal_groups(int signal);
  // To the workers alone, not to what they started.
  void signal_workers(int signal) const;
  void kill_worker(int local_rank, const std::string& reason);

  const std::vector<Worker>& workers() const { return workers_; }
  int running() const;
  bool has_ended_well() const;  // at least one has ended, and all that have ended gave 0
  std::vector<int> running_pids() const;

 private:
  std::vector<Worker> workers_;
  std::vector<int> sent_;  // signals
  std::chrono::system_clock::time_point last_reap_ = std::chrono::system_clock::now();
};

}  // namespace torchbridge
