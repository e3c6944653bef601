// What finds workers that run and are not healthy: --health-check, and --uninterruptible-timeout.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "bridge/base/env_map.h"
#include "bridge/start/process.h"
#include "bridge/supervision/worker_process.h"

namespace torchbridge {

// A check is `sh -c COMMAND` with the worker's environment and its pid in TORCHBRIDGE_WORKER_PID,
// every interval; one that ends with another exit code than 0, or does not end within an interval
// and kShortestLimit, has failed. Passive, as WorkerGroup.
class HealthChecks {
 public:
  using Clock = std::chrono::steady_clock;
  // A busy node may need as long to start a process.
  static constexpr std::chrono::seconds kShortestLimit{1};

  // An empty command: no checks.
  HealthChecks(std::string command, std::chrono::duration<double> interval,
               const OuterState& outer);
  ~HealthChecks();  // ends the checks that run
  HealthChecks(const HealthChecks&) = delete;
  HealthChecks& operator=(const HealthChecks&) = delete;

  // The first check is an interval from now.
  void add(int local_rank, int pid, const EnvMap& environment);
  // The worker has ended.
  void remove(int local_rank);

  Clock::time_point next_due() const;

  struct Failure {
    int local_rank;
    std::string reason;
  };
  // Starts what is due, and collects what has ended or runs for too long.
  std::vector<Failure> step();

 private:
  struct Check {
    int local_rank;
    EnvMap environment;
    Clock::time_point due;    // of the next start
    int pid = 0;              // of the check that runs; 0: none
    Clock::time_point end{};  // of the time of the check that runs
  };
  std::string step(Check& check);  // why it failed, or empty
  std::string reap(Check& check) const;

  std::string command_;
  Clock::duration interval_;
  Clock::duration limit_;  // of a check's time
  OuterState outer_;
  std::vector<Check> checks_;
};

// Looks at the state of each running worker four times within the limit, at most once a second: it
// has failed when it was in uninterruptible sleep each time for so long. Passive, as WorkerGroup.
class SleepWatch {
 public:
  using Clock = std::chrono::steady_clock;

  // 0: it never looks.
  explicit SleepWatch(std::chrono::duration<double> limit);

  Clock::time_point next_due() const { return due_; }

  // The local ranks that have been asleep for as long as the limit; each once. Looks only where it
  // is due.
  std::vector<int> step(const std::vector<WorkerProcess>& workers, Clock::time_point now);

 private:
  const Clock::duration limit_, interval_;
  Clock::time_point due_;
  std::map<int, Clock::time_point> asleep_since_;  // by local rank; max(): has been reported
};

}  // namespace torchbridge
