#include "bridge/run_values/restart_policy.h"

#include <sys/wait.h>

#include <algorithm>
#include <cctype>
#include <csignal>

#include "bridge/base/message_text.h"

namespace torchbridge {
namespace {

bool asks_for_requeue(const AttemptReport& attempt) {
  return has_failed(attempt) && std::ranges::all_of(attempt.failures, [](const auto& worker) {
           return is_consequence(worker) || wants_requeue(worker.wait_status);
         });
}

bool is_done_by_others(int wait_status) {
  return WIFSIGNALED(wait_status) &&
         (WTERMSIG(wait_status) == SIGKILL || WTERMSIG(wait_status) == SIGTERM);
}

// A pid, a port or an address differs each time.
std::string without_numbers(const std::string& text) {
  std::string kept;
  for (std::size_t i = 0; i < text.size();) {
    const bool is_hex = text.compare(i, 2, "0x") == 0;
    const auto end = std::find_if_not(
        text.begin() + static_cast<std::ptrdiff_t>(i + (is_hex ? 2 : 0)), text.end(),
        [&](unsigned char c) { return is_hex ? isxdigit(c) : isdigit(c); });
    const auto next = static_cast<std::size_t>(end - text.begin());
    kept += next > i ? '#' : text[i];
    i = std::max(next, i + 1);
  }
  return kept;
}

std::string message_of(const WorkerReport& worker) {
  return worker.error ? without_numbers(worker.error->message) : "";
}

bool is_crash_loop(const std::vector<AttemptReport>& attempts) {
  const WorkerReport& root = attempts.back().failures.front();
  if (is_done_by_others(root.wait_status)) return false;
  int in_a_row = 0;
  for (auto attempt = attempts.rbegin(); attempt != attempts.rend(); ++attempt) {
    if (!has_failed(*attempt) || !attempt->interruption.empty()) continue;
    const WorkerReport& worker = attempt->failures.front();
    const bool is_same =
        worker.wait_status == root.wait_status && message_of(worker) == message_of(root);
    const bool is_at_once = attempt->lifetime < kAtOnce || worker.time - attempt->started < kAtOnce;
    if (!is_same || !is_at_once) return false;
    if (++in_a_row == kCrashLoop) return true;
  }
  return false;
}

}  // namespace

Decision decide(const std::vector<AttemptReport>& attempts, int restarts,
                const RestartRules& rules) {
  const AttemptReport& last = attempts.back();
  Decision decision;
  if (asks_for_requeue(last)) {
    decision.exit_code = kRequeueExitCode;
  } else if (rules.stop_signal != 0) {
    decision.exit_code = 128 + rules.stop_signal;
  }
  if (decision.exit_code != 0 || !has_failed(last)) return decision;

  decision.exit_code = std::max(1, exit_code_of(last.failures.front().wait_status));
  if (!last.can_restart) {
    decision.reason = "a worker, or a process that it started, did not end after SIGKILL";
  } else if (restarts >= rules.max_restarts) {
    if (rules.max_restarts > 0)
      decision.reason =
          formatted("{} used (--max-restarts)", counted(rules.max_restarts, "restart"));
  } else if (is_crash_loop(attempts)) {
    decision.reason = formatted("the same failure {} times in a row, each within {} s of the start",
                                kCrashLoop, static_cast<int>(kAtOnce.count()));
  } else {
    decision.next = Decision::Next::kRestart;
    decision.exit_code = 0;
    decision.delay = rules.backoff;
    for (int i = 0; i < restarts && decision.delay < kLongestBackoff; ++i) decision.delay *= 2;
    decision.delay = std::min(decision.delay, kLongestBackoff);
  }
  return decision;
}

}  // namespace torchbridge
