// The report of a run: for standard error where it failed, and as JSON.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "bridge/run_values/error_record.h"
#include "bridge/run_values/restart_policy.h"
#include "bridge/run_values/worker_process.h"

namespace torchbridge {

// One worker that did not end with 0.
struct WorkerReport {
  int rank = 0, local_rank = 0, pid = 0;
  std::string host;
  int wait_status = 0;                               // never 0
  std::chrono::system_clock::time_point time;        // of the failure, or when it was noticed
  std::chrono::system_clock::time_point not_before;  // and when at the earliest it was: the order of failures
  std::string clock;                                 // the host by whose clock these are
  double time_error = 0;                             // seconds by which they may be off, where that is another host
  bool is_ended_by_agent = false;
  bool is_out_of_memory = false;
  bool is_stuck = false;   // in uninterruptible sleep: it has not ended
  std::string health;      // why the agent ended it, or empty
  std::string error_file;  // with `error`; or empty
  std::optional<ErrorRecord> error;
  std::string log;      // its stderr.log, or empty
  std::string log_end;  // the last lines of it, where the failure is the worker's own
};

// Reads the worker's error file and the end of its log. `not_before`: the start of the attempt.
WorkerReport report_of(const WorkerProcess& worker, const std::string& host,
                       std::chrono::system_clock::time_point not_before);

// The agent ended it because of another: it is no failure of its own.
bool is_consequence(const WorkerReport& worker);

struct AttemptReport {
  int restart_count = 0;
  std::chrono::system_clock::time_point started;
  std::chrono::duration<double> lifetime{};
  std::vector<WorkerReport>
      failures;              // the root cause first, then those that failed by themselves, by time; then others
  std::string interruption;  // what made workers fail or be ended, as "node n2 (pid 17) is lost: ..."; empty: a failure
};

// In the order of AttemptReport. Of several that were reaped together one that a signal ended comes first.
std::vector<WorkerReport> in_order(std::vector<WorkerReport> failures);

// What the restart policy reads of it. `can_restart`: as in AttemptEnd.
AttemptEnd end_of(const AttemptReport& attempt, bool can_restart);

struct RunReport {
  std::string program, run_id, host;
  int exit_code = 0;
  std::string reason;  // why it was not restarted, or empty
  std::string folder;  // of the logs, or empty
  std::chrono::duration<double> lifetime{};
  std::vector<AttemptReport> attempts;
};

// "rank 2 on n1, at 2026-11-21 12:03:04.123 (local time of n1): killed by signal 9 (Killed)", and the first line of
// why.
std::string first_line(const WorkerReport& worker);

// What ended it: the interruption, or the first failure. REQUIRES: it has one of them.
std::string cause_of(const AttemptReport& attempt);

// The root cause of the last attempt with its error and the end of its stderr, then the others, a line each. Lines
// without a newline at the end of the last. REQUIRES: the last attempt has a failure.
std::string summary_text(const RunReport& run);

// {"program", "run_id", "host", "result": "succeeded" | "failed" | "requeue" | "stopped", "exit_code", "reason",
// "seconds", "folder", "attempts": [{"restart_count", "start", "seconds", "interruption", "failures": [{"rank",
// "local_rank", "pid", "host", "time", "time_error", "exit_code" or "signal", "ended_by_agent", "out_of_memory",
// "stuck", "message", "error_file", "stderr"}]}]}. Times are seconds since 1970.
std::string summary_json(const RunReport& run, int stop_signal);

}  // namespace torchbridge
