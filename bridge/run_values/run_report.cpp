#include "bridge/run_values/run_report.h"

#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <deque>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "bridge/base/visible_text.h"
#include "bridge/step/failure.h"

namespace torchbridge {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::streamoff kLogTail = 8192;  // bytes
constexpr std::size_t kLogLines = 20;
constexpr std::size_t kLongestShown = 512;  // of a program's name or a run's id

// What a terminal shows of it: a progress bar's last state.
void keep_last_state(std::string& line) {
  if (line.ends_with('\r')) line.pop_back();
  line.erase(0, line.rfind('\r') + 1);
}

std::string lines_at_end(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  file.seekg(0, std::ios::end);
  const std::streamoff size = file.tellg();
  if (path.empty() || size <= 0) return "";
  file.seekg(std::max<std::streamoff>(0, size - kLogTail));
  std::string text{std::istreambuf_iterator<char>(file), {}};
  std::deque<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    keep_last_state(line);
    lines.push_back(std::move(line));
    if (lines.size() > kLogLines) lines.pop_front();
  }
  std::string end;
  for (const std::string& line : lines) end += (end.empty() ? "" : "\n") + line;
  return end;
}

// What the health check or the worker itself gave; or empty.
std::string reason_of(const WorkerReport& worker) {
  if (!worker.health.empty()) return worker.health;
  return worker.error ? worker.error->message : "";
}

std::string first_line_of(const std::string& text) { return text.substr(0, text.find('\n')); }

// describe() escapes what is no text.
std::string described(const WorkerReport& worker, const std::string& reason) {
  TaskFailure failure;
  failure.rank = worker.rank;
  failure.node = worker.host;
  failure.wait_status = worker.wait_status;
  failure.time = worker.time;
  failure.clock = worker.clock;
  failure.out_of_memory = worker.is_out_of_memory;
  failure.reason = reason;
  return describe(failure);
}

std::string ending(const WorkerReport& worker) {
  if (worker.is_stuck) {
    return "rank " + std::to_string(worker.rank) + " on " + worker.host + ": pid " + std::to_string(worker.pid) +
           " does not end after SIGKILL: it is in uninterruptible sleep (state D), in a driver or a file system; its "
           "GPUs and ports stay in use until it ends";
  }
  return described(worker, reason_of(worker));
}

std::string root_cause(const WorkerReport& worker) {
  std::string text = worker.is_stuck || !worker.error || !worker.health.empty()
                         ? ending(worker)
                         : described(worker, worker.error->callstack);
  if (!worker.error_file.empty()) text += "\n  error file: " + worker.error_file;
  // describe() indents and escapes the lines; its own first line is cut off.
  if (!worker.log_end.empty()) {
    const std::string lines = described(worker, worker.log_end).substr(described(worker, "").size());
    text += "\n  the end of " + worker.log + ":" + lines;
  }
  return text;
}

// A handler of the agent's signal may end the worker by an exit code of its own, with or without an error file.
bool is_answer_to_signal(const WorkerProcess& worker, const std::optional<ErrorRecord>& error) {
  if (!worker.signalled || !WIFEXITED(worker.wait_status)) return false;
  return WEXITSTATUS(worker.wait_status) != kRequeueExitCode && (!error || error->time >= *worker.signalled);
}

std::string ranks_text(std::vector<WorkerReport> workers) {
  std::sort(workers.begin(), workers.end(), [](const auto& left, const auto& right) { return left.rank < right.rank; });
  std::string text;
  for (const WorkerReport& worker : workers) text += (text.empty() ? "" : ", ") + std::to_string(worker.rank);
  return (workers.size() == 1 ? "rank " : "ranks ") + text;
}

// Of the first failures, where the clocks of their nodes do not show which was first; else empty.
std::string doubt_of_order(const std::vector<WorkerReport>& failures) {
  const WorkerReport& root = failures.front();
  for (const WorkerReport& worker : failures) {
    const double error = root.time_error + worker.time_error;
    const double apart = std::chrono::duration<double>(worker.not_before - root.not_before).count();
    if (worker.host == root.host || is_consequence(worker) || apart > error) continue;
    char text[160];
    std::snprintf(
        text, sizeof text,
        "rank %d may have failed before rank %d: the clock difference of their nodes has an error of up to %.1f ms",
        worker.rank, root.rank, error * 1000);
    return text;
  }
  return "";
}

std::string attempts_text(const RunReport& run) {
  char text[64];
  std::snprintf(text, sizeof text, "%zu attempt%s, %.1f s", run.attempts.size(), run.attempts.size() == 1 ? "" : "s",
                run.lifetime.count());
  return text;
}

double seconds_since_1970(std::chrono::system_clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

OrderedJson json_of(const WorkerReport& worker) {
  OrderedJson object = {
      {"rank", worker.rank}, {"local_rank", worker.local_rank},         {"pid", worker.pid},
      {"host", worker.host}, {"time", seconds_since_1970(worker.time)}, {"time_error", worker.time_error}};
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

WorkerReport report_of(const WorkerProcess& worker, const std::string& host,
                       std::chrono::system_clock::time_point not_before) {
  WorkerReport report;
  report.rank = worker.rank;
  report.local_rank = worker.local_rank;
  report.pid = worker.pid;
  report.host = report.clock = host;
  report.wait_status = worker.is_running ? SIGKILL : worker.wait_status;  // one that is stuck has got it
  report.is_stuck = worker.is_running;
  report.health = worker.health;
  report.log = worker.error_log;
  report.error = read_error_record(worker.error_file, not_before);
  report.is_ended_by_agent = worker.is_ended_by_agent || is_answer_to_signal(worker, report.error);
  // It failed when it wrote the file, and may have taken a while to end. A signal from outside may be reaped late,
  // after what it caused; abort() is the worker's own, as when it loses its peers.
  report.time = report.error ? std::min(report.error->time, worker.time) : worker.time;
  const bool is_from_outside = WIFSIGNALED(worker.wait_status) && WTERMSIG(worker.wait_status) != SIGABRT;
  report.not_before = is_from_outside && !report.error ? worker.not_before : report.time;
  if (report.error) report.error_file = worker.error_file;
  if (!is_consequence(report)) report.log_end = lines_at_end(worker.error_log);
  return report;
}

bool is_consequence(const WorkerReport& worker) {
  return worker.health.empty() && (worker.is_ended_by_agent || worker.is_stuck);
}

std::vector<WorkerReport> in_order(std::vector<WorkerReport> failures) {
  std::stable_sort(failures.begin(), failures.end(), [](const WorkerReport& left, const WorkerReport& right) {
    return std::pair(is_consequence(left), left.not_before) < std::pair(is_consequence(right), right.not_before);
  });
  return failures;
}

AttemptEnd end_of(const AttemptReport& attempt, bool can_restart) {
  AttemptEnd end;
  end.lifetime = attempt.lifetime;
  if (!attempt.failures.empty()) {  // not the time that the others took to end
    end.lifetime =
        std::min<std::chrono::duration<double>>(attempt.lifetime, attempt.failures.front().time - attempt.started);
  }
  end.can_restart = can_restart;
  for (const WorkerReport& worker : attempt.failures) {
    if (is_consequence(worker)) continue;
    end.failures.push_back({worker.rank, worker.wait_status, worker.error ? worker.error->message : ""});
  }
  return end;
}

std::string first_line(const WorkerReport& worker) {
  const std::string reason = reason_of(worker);
  const std::string text = described(worker, "");
  return reason.empty() ? text : text + ": " + visible_line(first_line_of(reason));
}

std::string cause_of(const AttemptReport& attempt) {
  return attempt.interruption.empty() ? first_line(attempt.failures.front()) : attempt.interruption;
}

std::string summary_text(const RunReport& run) {
  const AttemptReport& last = run.attempts.back();
  std::string text = visible_line(run.program, kLongestShown) + " failed after " + attempts_text(run) + " (run " +
                     visible_line(run.run_id, kLongestShown) + ")";
  const bool is_interrupted = !last.interruption.empty();
  text += "\n  root cause: " + (is_interrupted ? last.interruption : root_cause(last.failures.front()));
  std::vector<WorkerReport> ended_by_agent;
  for (auto worker = last.failures.begin() + (is_interrupted ? 0 : 1); worker != last.failures.end(); ++worker) {
    if (worker->is_stuck) {
      text += "\n  " + ending(*worker);
    } else if (is_consequence(*worker)) {
      ended_by_agent.push_back(*worker);
    } else {
      text += "\n  then: " + first_line(*worker);
    }
  }
  if (const std::string doubt = doubt_of_order(last.failures); !doubt.empty()) text += "\n  " + doubt;
  if (!ended_by_agent.empty()) text += "\n  ended because of it: " + ranks_text(ended_by_agent);
  if (!run.reason.empty()) text += "\n  not restarted: " + run.reason;
  if (!run.folder.empty()) text += "\n  logs: " + run.folder;
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
