// Runs the command of --health-check for each worker in turn.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "bridge/base/env_map.h"
#include "bridge/supervision/process.h"

namespace torchbridge {

// A check is `sh -c COMMAND` with the worker's environment and its pid in TORCHBRIDGE_WORKER_PID, every interval; one
// that ends with another exit code than 0, or does not end within an interval, has failed. Passive, as WorkerGroup.
class HealthChecks {
 public:
  using Clock = std::chrono::steady_clock;

  // An empty command: no checks.
  HealthChecks(std::string command, std::chrono::duration<double> interval, const OuterState& outer);
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
    Clock::time_point due;  // of the next start, or of the end of the one that runs
    int pid = 0;            // of the check that runs; 0: none
  };
  std::string step(Check& check);  // why it failed, or empty
  std::string reap(Check& check) const;

  std::string command_;
  Clock::duration interval_;
  OuterState outer_;
  std::vector<Check> checks_;
};

}  // namespace torchbridge
