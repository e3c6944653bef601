#include "bridge/supervision/health_checks.h"

#include <sys/wait.h>

#include <algorithm>

#include "bridge/base/message_text.h"
#include "bridge/host/process_tree.h"
#include "bridge/start/process.h"
#include "bridge/step/failure.h"

namespace torchbridge {
namespace {

// It may be in uninterruptible sleep, which is not waited for: the agent reaps what is left at the
// end of the attempt.
void end_check(int pid) {
  kill(-pid, SIGKILL);
  waitpid(pid, nullptr, WNOHANG);
}

}  // namespace

HealthChecks::HealthChecks(std::string command, std::chrono::duration<double> interval,
                           const OuterState& outer)
    : command_(std::move(command)),
      interval_(std::chrono::duration_cast<Clock::duration>(interval)),
      limit_(std::max<Clock::duration>(interval_, kShortestLimit)),
      outer_(outer) {}

HealthChecks::~HealthChecks() {
  for (const Check& check : checks_) {
    if (check.pid != 0) end_check(check.pid);
  }
}

void HealthChecks::add(int local_rank, int pid, const EnvMap& environment) {
  if (command_.empty()) return;
  checks_.push_back({local_rank, environment, Clock::now() + interval_});
  checks_.back().environment.set("TORCHBRIDGE_WORKER_PID", std::to_string(pid));
}

void HealthChecks::remove(int local_rank) {
  for (const Check& check : checks_) {
    if (check.local_rank == local_rank && check.pid != 0) end_check(check.pid);
  }
  std::erase_if(checks_, [&](const Check& check) { return check.local_rank == local_rank; });
}

HealthChecks::Clock::time_point HealthChecks::next_due() const {
  Clock::time_point next = Clock::time_point::max();
  for (const Check& check : checks_) next = std::min(next, check.pid ? check.end : check.due);
  return next;
}

std::vector<HealthChecks::Failure> HealthChecks::step() {
  std::vector<Failure> failures;
  for (Check& check : checks_) {
    if (std::string reason = step(check); !reason.empty())
      failures.push_back({check.local_rank, std::move(reason)});
  }
  return failures;
}

std::string HealthChecks::step(Check& check) {
  if (check.pid != 0) return reap(check);
  if (Clock::now() < check.due) return "";
  ProcessSpec spec;
  spec.command = {"/bin/sh", "-c", command_};
  spec.environment = check.environment;
  spec.outer = outer_;
  const auto now = Clock::now();
  check.due = now + interval_;
  check.end = now + limit_;
  const auto started = start_process(spec);
  if (const auto* failure = std::get_if<StartFailure>(&started)) return failure->error.message;
  check.pid = std::get<pid_t>(started);
  return "";
}

std::string HealthChecks::reap(Check& check) const {
  int status = 0;
  if (waitpid(check.pid, &status, WNOHANG) == check.pid) {
    check.pid = 0;
    return status == 0 ? "" : formatted("exit code {}", exit_code_of(status));
  }
  if (Clock::now() < check.end) return "";
  end_check(std::exchange(check.pid, 0));
  return formatted("no answer within {}",
                   seconds_text(std::chrono::duration<double>(limit_).count()));
}

SleepWatch::SleepWatch(std::chrono::duration<double> limit)
    : limit_(std::chrono::duration_cast<Clock::duration>(limit)),
      interval_(std::min<Clock::duration>(limit_ / 4, std::chrono::seconds(1))),
      due_(limit_.count() > 0 ? Clock::now() + interval_ : Clock::time_point::max()) {}

std::vector<int> SleepWatch::step(const std::vector<WorkerProcess>& workers,
                                  Clock::time_point now) {
  std::vector<int> found;
  if (now < due_) return found;
  due_ = now + interval_;
  for (const WorkerProcess& worker : workers) {
    if (!worker.is_running || !is_in_uninterruptible_sleep(worker.pid)) {
      asleep_since_.erase(worker.local_rank);
      continue;
    }
    auto& since = asleep_since_.try_emplace(worker.local_rank, now).first->second;
    if (since > now || now - since < limit_) continue;
    since = Clock::time_point::max();
    found.push_back(worker.local_rank);
  }
  return found;
}

}  // namespace torchbridge
