#include "bridge/run_values/run_report.h"

#include <sys/wait.h>

#include <algorithm>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "bridge/base/message_text.h"
#include "bridge/base/visible_text.h"

namespace torchbridge {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::size_t kLongestShown = 512;  // of a program's name or a run's id

// What the health check or the worker itself gave; or empty.
std::string reason_of(const WorkerReport& worker) {
  if (!worker.health.empty()) return worker.health;
  return worker.error ? worker.error->message : "";
}

std::string ending(const WorkerReport& worker) {
  if (worker.is_stuck) {
    return formatted(
        "rank {} on {}: pid {} does not end after SIGKILL: it is in uninterruptible sleep (state "
        "D), in a driver or a file system; its GPUs and ports stay in use until it ends",
        worker.rank, worker.host, worker.pid);
  }
  return describe(worker, reason_of(worker));
}

std::string root_cause(const WorkerReport& worker) {
  std::string text = worker.is_stuck || !worker.error || !worker.health.empty()
                         ? ending(worker)
                         : describe(worker, worker.error->callstack);
  if (!worker.error_file.empty()) text += formatted("\n  error file: {}", worker.error_file);
  // describe() indents and escapes the lines; its own first line is cut off.
  if (!worker.log_end.empty()) {
    const std::string lines = describe(worker, worker.log_end).substr(describe(worker).size());
    text += formatted("\n  the end of {}:{}", worker.log, lines);
  }
  return text;
}

std::string ranks_text(std::vector<WorkerReport> workers) {
  std::ranges::sort(workers, {}, &WorkerReport::rank);
  return (workers.size() == 1 ? "rank " : "ranks ") +
         joined(workers, ", ", [](const auto& worker) { return std::to_string(worker.rank); });
}

// Of the first failures, where the clocks of their nodes do not show which was first; else empty.
std::string doubt_of_order(const std::vector<WorkerReport>& failures) {
  const WorkerReport& root = failures.front();
  for (const WorkerReport& worker : failures) {
    const double error = root.time_error + worker.time_error;
    const double apart = std::chrono::duration<double>(worker.not_before - root.not_before).count();
    if (worker.host == root.host || is_consequence(worker) || apart > error) continue;
    char text[160];
    std::snprintf(text, sizeof text,
                  "rank %d may have failed before rank %d: the clock difference of their nodes has "
                  "an error of up to %.1f ms",
                  worker.rank, root.rank, error * 1000);
    return text;
  }
  return "";
}

std::string attempts_text(const RunReport& run) {
  char text[64];
  std::snprintf(text, sizeof text, "%zu attempt%s, %.1f s", run.attempts.size(),
                run.attempts.size() == 1 ? "" : "s", run.lifetime.count());
  return text;
}

double seconds_since_1970(std::chrono::system_clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

OrderedJson json_of(const WorkerReport& worker) {
  OrderedJson object = {{"rank", worker.rank},
                        {"local_rank", worker.local_rank},
                        {"pid", worker.pid},
                        {"host", worker.host},
                        {"time", seconds_since_1970(worker.time)},
                        {"time_error", worker.time_error}};
  if (WIFSIGNALED(worker.wait_status)) {
    object["signal"] = WTERMSIG(worker.wait_status);
  } else {
    object["exit_code"] = WEXITSTATUS(worker.wait_status);
  }
  object["ended_by_agent"] = worker.is_ended_by_agent;
  object["out_of_memory"] = worker.is_out_of_memory;
  object["stuck"] = worker.is_stuck;
  object["message"] = reason_of(worker);
  object["error_file"] = worker.error_file;
  object["stderr"] = worker.log;
  return object;
}

std::string result_of(const RunReport& run, int stop_signal) {
  if (run.exit_code == 0) return "succeeded";
  if (run.exit_code == kRequeueExitCode) return "requeue";
  return stop_signal != 0 ? "stopped" : "failed";
}

}  // namespace

bool is_consequence(const WorkerReport& worker) {
  return worker.health.empty() && (worker.is_ended_by_agent || worker.is_stuck);
}

std::vector<WorkerReport> in_order(std::vector<WorkerReport> failures) {
  std::ranges::stable_sort(failures, {}, [](const WorkerReport& worker) {
    return std::pair(is_consequence(worker), worker.not_before);
  });
  return failures;
}

bool has_failed(const AttemptReport& attempt) {
  return !attempt.failures.empty() && !is_consequence(attempt.failures.front());
}

std::string first_line(const WorkerReport& worker) {
  const std::string reason = reason_of(worker);
  const std::string text = describe(worker);
  return reason.empty() ? text : text + ": " + visible_line(reason.substr(0, reason.find('\n')));
}

std::string cause_of(const AttemptReport& attempt) {
  return attempt.interruption.empty() ? first_line(attempt.failures.front()) : attempt.interruption;
}

std::string summary_text(const RunReport& run) {
  const AttemptReport& last = run.attempts.back();
  std::string text =
      formatted("{} failed after {}", visible_line(run.program, kLongestShown), attempts_text(run));
  if (run.is_named) text += formatted(" (run {})", visible_line(run.run_id, kLongestShown));
  const bool is_interrupted = !last.interruption.empty();
  text += formatted("\n  root cause: {}",
                    is_interrupted ? last.interruption : root_cause(last.failures.front()));
  std::vector<WorkerReport> ended_by_agent;
  for (auto worker = last.failures.begin() + (is_interrupted ? 0 : 1);
       worker != last.failures.end(); ++worker) {
    if (worker->is_stuck) {
      text += "\n  " + ending(*worker);
    } else if (is_consequence(*worker)) {
      ended_by_agent.push_back(*worker);
    } else {
      text += formatted("\n  then: {}", first_line(*worker));
    }
  }
  if (const std::string doubt = doubt_of_order(last.failures); !doubt.empty())
    text += "\n  " + doubt;
  if (!ended_by_agent.empty())
    text += formatted("\n  ended because of it: {}", ranks_text(ended_by_agent));
  if (!run.reason.empty() && run.reason != last.interruption)
    text += formatted("\n  not restarted: {}", run.reason);
  if (!run.folder.empty()) text += formatted("\n  logs: {}", run.folder);
  return text;
}

std::string summary_json(const RunReport& run, int stop_signal) {
  OrderedJson attempts = OrderedJson::array();
  for (const AttemptReport& attempt : run.attempts) {
    OrderedJson failures = OrderedJson::array();
    for (const WorkerReport& worker : attempt.failures) failures.push_back(json_of(worker));
    attempts.push_back({{"restart_count", attempt.restart_count},
                        {"start", seconds_since_1970(attempt.started)},
                        {"seconds", attempt.lifetime.count()},
                        {"interruption", attempt.interruption},
                        {"failures", failures}});
  }
  const OrderedJson object = {{"program", run.program},
                              {"run_id", run.run_id},
                              {"host", run.host},
                              {"result", result_of(run, stop_signal)},
                              {"exit_code", run.exit_code},
                              {"reason", run.reason},
                              {"seconds", run.lifetime.count()},
                              {"folder", run.folder},
                              {"attempts", attempts}};
  return object.dump(2, ' ', true, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace torchbridge
