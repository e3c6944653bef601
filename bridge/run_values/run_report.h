// The report of a run: for standard error where it failed, and as JSON.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "bridge/step/failure.h"

namespace torchbridge {

// Why a worker failed, by its own error file. The texts may hold any bytes.
struct ErrorRecord {
  std::string message;                         // "TYPE: TEXT"
  std::string callstack;                       // the message where the worker wrote none
  std::chrono::system_clock::time_point time;  // when the file was last written
};

// One worker that did not end with 0.
struct WorkerReport : TaskFailure {
  int local_rank = 0, pid = 0;
  // When it failed at the earliest: the order of failures.
  std::chrono::system_clock::time_point not_before;
  double time_error = 0;  // seconds by which the times may be off, where `clock` is another host
  bool is_ended_by_agent = false;
  bool is_stuck = false;   // in uninterruptible sleep: it has not ended
  std::string health;      // why the agent ended it, or empty
  std::string error_file;  // with `error`; or empty
  std::optional<ErrorRecord> error;
  std::string log;      // its stderr.log, or empty
  std::string log_end;  // the last lines of it, where the failure is the worker's own
};

// The agent ended it because of another: it is no failure of its own.
bool is_consequence(const WorkerReport& worker);

struct AttemptReport {
  int restart_count = 0;
  std::chrono::system_clock::time_point started;
  std::chrono::duration<double> lifetime{};
  // The root cause first, then those that failed by themselves, by time; then others.
  std::vector<WorkerReport> failures;
  std::string interruption;  // what made workers fail or be ended, as "node n2 (pid 17) is lost:
                             // ..."; empty: a failure
  bool can_restart = true;   // false: a process of it did not end after SIGKILL
};

// A worker failed by itself: the first of `failures`.
bool has_failed(const AttemptReport& attempt);

// In the order of AttemptReport. Of several that were reaped together one that a signal ended comes
// first.
std::vector<WorkerReport> in_order(std::vector<WorkerReport> failures);

struct RunReport {
  std::string program, run_id, host;
  bool is_named = false;  // by --rdzv-id, or by the launcher: people know the id
  int exit_code = 0;
  std::string reason;  // why it was not restarted, or empty
  std::string folder;  // of the logs, or empty
  std::chrono::duration<double> lifetime{};
  std::vector<AttemptReport> attempts;
};

// "rank 2 on n1, at 2026-11-21 12:03:04.123 (local time of n1): killed by signal 9 (Killed)", and
// the first line of why.
std::string first_line(const WorkerReport& worker);

// What ended it: the interruption, or the first failure. REQUIRES: it has one of them.
std::string cause_of(const AttemptReport& attempt);

// The root cause of the last attempt with its error and the end of its stderr, then the others, a
// line each. Lines without a newline at the end of the last. REQUIRES: the last attempt has a
// failure.
std::string summary_text(const RunReport& run);

// {"program", "run_id", "host", "result": "succeeded" | "failed" | "requeue" | "stopped",
// "exit_code", "reason", "seconds", "folder", "attempts": [{"restart_count", "start", "seconds",
// "interruption", "failures": [{"rank", "local_rank", "pid", "host", "time", "time_error",
// "exit_code" or "signal", "ended_by_agent", "out_of_memory", "stuck", "message", "error_file",
// "stderr"}]}]}. Times are seconds since 1970.
std::string summary_json(const RunReport& run, int stop_signal);

}  // namespace torchbridge
