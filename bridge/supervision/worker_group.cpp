#include "bridge/supervision/worker_group.h"

#include <sys/wait.h>

#include <algorithm>

namespace torchbridge {
namespace {

// Longer than the agent is asleep between the death of a worker and its reaping, on a loaded
// machine.
constexpr std::chrono::milliseconds kReapDelay{50};

}  // namespace

std::optional<StartFailure> WorkerGroup::start(WorkerProcess worker, const ProcessSpec& spec,
                                               PreloadedPython* python) {
  const auto started = python ? python->start(spec) : start_process(spec);
  if (const auto* failure = std::get_if<StartFailure>(&started)) return *failure;
  worker.pid = std::get<pid_t>(started);
  worker.is_running = true;
  workers_.push_back(std::move(worker));
  return std::nullopt;
}

WorkerGroup::Changes WorkerGroup::reap() {
  Changes changes;
  const auto now = std::chrono::system_clock::now();
  for (WorkerProcess& worker : workers_) {
    int status = 0;
    while (worker.is_running &&
           waitpid(worker.pid, &status, WNOHANG | WUNTRACED | WCONTINUED) > 0) {
      if (WIFSTOPPED(status)) {
        worker.is_stopped = true;
        changes.stopped.push_back(&worker);
      } else if (WIFCONTINUED(status)) {
        worker.is_stopped = false;
        changes.continued.push_back(&worker);
      } else {
        worker.is_running = worker.is_stopped = false;
        worker.wait_status = status;
        worker.time = now;
        worker.not_before = std::max(last_reap_, now - kReapDelay);
        worker.is_ended_by_agent =
            WIFSIGNALED(status) && std::ranges::find(sent_, WTERMSIG(status)) != sent_.end();
        worker.signalled = first_sent_;
        changes.ended.push_back(&worker);
      }
    }
  }
  last_reap_ = now;
  return changes;
}

void WorkerGroup::note_signal(int signal) {
  sent_.push_back(signal);
  if (!first_sent_) first_sent_ = std::chrono::system_clock::now();
}

void WorkerGroup::signal_groups(int signal) {
  note_signal(signal);
  for (const WorkerProcess& worker : workers_) {
    if (worker.is_running) kill(-worker.pid, signal);
  }
}

void WorkerGroup::signal_workers(int signal) const {
  for (const WorkerProcess& worker : workers_) {
    if (worker.is_running) kill(worker.pid, signal);
  }
}

void WorkerGroup::continue_stopped() const {
  for (const WorkerProcess& worker : workers_) {
    if (worker.is_running && worker.is_stopped) kill(-worker.pid, SIGCONT);
  }
}

void WorkerGroup::kill_worker(int local_rank, const std::string& reason) {
  for (WorkerProcess& worker : workers_) {
    if (worker.local_rank != local_rank || !worker.is_running) continue;
    worker.health = reason;
    kill(-worker.pid, SIGKILL);
  }
}

int WorkerGroup::running() const {
  return static_cast<int>(
      std::ranges::count_if(workers_, [](const WorkerProcess& w) { return w.is_running; }));
}

bool WorkerGroup::has_ended_well() const {
  const auto is_bad = [](const WorkerProcess& worker) {
    return !worker.is_running && worker.wait_status != 0;
  };
  return running() < static_cast<int>(workers_.size()) && std::ranges::none_of(workers_, is_bad);
}

std::vector<int> WorkerGroup::running_pids() const {
  std::vector<int> pids;
  for (const WorkerProcess& worker : workers_) {
    if (worker.is_running) pids.push_back(worker.pid);
  }
  return pids;
}

}  // namespace torchbridge
