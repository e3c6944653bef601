#include "bridge/run_values/restart_policy.h"

#include <sys/wait.h>

#include <algorithm>
#include <cctype>
#include <csignal>

namespace torchbridge {
namespace {

bool wants_requeue(const AttemptEnd& attempt) {
  return !attempt.failures.empty() &&
         std::all_of(attempt.failures.begin(), attempt.failures.end(), [](const WorkerEnd& worker) {
           return WIFEXITED(worker.wait_status) && WEXITSTATUS(worker.wait_status) == kRequeueExitCode;
         });
}

bool is_done_by_others(int wait_status) {
  return WIFSIGNALED(wait_status) && (WTERMSIG(wait_status) == SIGKILL || WTERMSIG(wait_status) == SIGTERM);
}

// A pid, a port or an address differs each time.
std::string without_numbers(const std::string& text) {
  std::string kept;
  for (std::size_t i = 0; i < text.size();) {
    const bool is_hex = text.compare(i, 2, "0x") == 0;
    const auto end = std::find_if_not(text.begin() + static_cast<std::ptrdiff_t>(i + (is_hex ? 2 : 0)), text.end(),
                                      [&](unsigned char c) { return is_hex ? isxdigit(c) : isdigit(c); });
    const auto next = static_cast<std::size_t>(end - text.begin());
    kept += next > i ? '#' : text[i];
    i = std::max(next, i + 1);
  }
  return kept;
}

bool is_same_failure(const AttemptEnd& left, const AttemptEnd& right) {
  const WorkerEnd &a = left.failures.front(), &b = right.failures.front();
  return a.wait_status == b.wait_status && without_numbers(a.message) == without_numbers(b.message);
}

bool is_crash_loop(const std::vector<AttemptEnd>& attempts) {
  if (attempts.size() < kCrashLoop || is_done_by_others(attempts.back().failures.front().wait_status)) return false;
  return std::all_of(attempts.end() - kCrashLoop, attempts.end(), [&](const AttemptEnd& attempt) {
    return attempt.lifetime < kAtOnce && is_same_failure(attempt, attempts.back());
  });
}

std::string count_of(int number, const std::string& noun) {
  return std::to_string(number) + " " + noun + (number == 1 ? "" : "s");
}

}  // namespace

int exit_code_of(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

Decision decide(const std::vector<AttemptEnd>& attempts, int restarts, const RestartRules& rules) {
  const AttemptEnd& last = attempts.back();
  Decision decision;
  if (wants_requeue(last)) {
    decision.exit_code = kRequeueExitCode;
  } else if (rules.stop_signal != 0) {
    decision.exit_code = 128 + rules.stop_signal;
  }
  if (decision.exit_code != 0 || last.failures.empty()) return decision;

  decision.exit_code = std::max(1, exit_code_of(last.failures.front().wait_status));
  if (!last.can_restart) {
    decision.reason = "a worker, or a process that it started, did not end after SIGKILL";
  } else if (restarts >= rules.max_restarts) {
    if (rules.max_restarts > 0) decision.reason = count_of(rules.max_restarts, "restart") + " used (--max-restarts)";
  } else if (is_crash_loop(attempts)) {
    decision.reason = "the same failure " + std::to_string(kCrashLoop) + " times in a row, each within " +
                      std::to_string(static_cast<int>(kAtOnce.count())) + " s of the start";
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
