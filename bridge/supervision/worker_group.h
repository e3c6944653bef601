// The workers of one attempt: started together, signalled together, each with how it ended.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "bridge/start/preloaded_python.h"
#include "bridge/start/process.h"
#include "bridge/supervision/worker_process.h"

namespace torchbridge {

// Passive: whoever owns it waits for SIGCHLD and for time. One thread.
class WorkerGroup {
 public:
  // A fork of `python` where there is one.
  std::optional<StartFailure> start(WorkerProcess worker, const ProcessSpec& spec,
                                    PreloadedPython* python);

  // What happened to the workers since the last call.
  struct Changes {
    std::vector<const WorkerProcess*> ended, stopped, continued;
  };
  Changes reap();

  // To the process group of each that runs.
  void signal_groups(int signal);
  // They have this one from another sender.
  void note_signal(int signal);
  // To the workers alone, not to what they started.
  void signal_workers(int signal) const;
  // SIGCONT to the process group of each that is stopped.
  void continue_stopped() const;
  // SIGKILL, and why; not empty.
  void kill_worker(int local_rank, const std::string& reason);

  const std::vector<WorkerProcess>& workers() const { return workers_; }
  int running() const;
  bool has_ended_well() const;  // at least one has ended, and all that have ended gave 0
  std::vector<int> running_pids() const;

 private:
  std::vector<WorkerProcess> workers_;
  std::vector<int> sent_;  // signals
  std::optional<std::chrono::system_clock::time_point> first_sent_;
  std::chrono::system_clock::time_point last_reap_ = std::chrono::system_clock::now();
};

}  // namespace torchbridge
