#include "bridge/supervision/attempt.h"

#include <sys/wait.h>

#include <algorithm>
#include <cstring>

#include "bridge/host/process_tree.h"
#include "bridge/run_values/restart_policy.h"
#include "bridge/run_values/run_report.h"
#include "bridge/supervision/guardian.h"
#include "bridge/supervision/worker_command.h"

namespace torchbridge {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

// Of its time a process that waits for others uses less than this.
constexpr double kIdle = 0.01;

SteadyTime after(Seconds seconds) { return Clock::now() + std::chrono::duration_cast<Clock::duration>(seconds); }

std::string rank_text(const WorkerProcess& worker) {
  return "rank " + std::to_string(worker.rank) + " (pid " + std::to_string(worker.pid) + ")";
}

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", seconds);
  return text;
}

}  // namespace

void print_line(const AgentContext& context, const std::string& message) {
  const LineStyle style{context.options.log_format, "torchbridge: ", -1, "agent"};
  context.consoles.err.add(formatted(style, message));
  context.consoles.err.flush();
}

bool note_stop(AgentContext& context, int signal) {
  const bool is_first = context.stop_signal == 0;
  if (is_first) context.stop_signal = signal;
  if (is_first || signal == SIGINT) context.output_until = after(Seconds(is_first ? context.options.grace : 0));
  return is_first;
}

Attempt::Attempt(AgentContext& context, const AttemptFacts& facts)
    : context_(context),
      facts_(facts),
      streams_(context.options, context.folder, context.consoles,
               std::string(context.environment.get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE").value_or(""))),
      health_(context.options.health_check, Seconds(context.options.health_check_interval), context.outer) {}

std::optional<StartFailure> Attempt::start(const Socket& store_port) {
  for (int local_rank = 0; local_rank < facts_.workers; ++local_rank) {
    auto failure = start_worker(local_rank, store_port);
    if (!failure) continue;
    kill_all();
    supervise();
    return failure;
  }
  return std::nullopt;
}

std::optional<StartFailure> Attempt::start_worker(int local_rank, const Socket& store_port) {
  WorkerProcess worker;
  worker.local_rank = local_rank;
  worker.rank = facts_.first_rank + local_rank;
  worker.error_file = context_.folder.worker_file(local_rank, "error.json");
  auto output = streams_.open(local_rank, worker.rank);
  if (!output) return StartFailure{EXIT_FAILURE, output.error()};
  if (output->err.open() &&
      ((context_.options.redirects.of(local_rank) | context_.options.tee.of(local_rank)) & kStderr)) {
    worker.error_log = context_.folder.worker_file(local_rank, "stderr.log");
  }
  ProcessSpec spec;
  spec.environment = worker_environment(context_.environment, facts_, context_.options, local_rank, worker.error_file);
  if (context_.body) {
    spec.body = context_.body;
  } else {
    spec.command = worker_command(context_.options, context_.environment, local_rank);
  }
  if (worker.rank == 0 && store_port.open()) {
    spec.inherited = store_port.descriptor();
    spec.environment.set("TORCHBRIDGE_LISTEN_FD", std::to_string(spec.inherited));
  }
  spec.standard_output = output->out.descriptor();
  spec.standard_error = output->err.descriptor();
  if (!context_.worker_cpus.empty()) spec.cpus = context_.worker_cpus[static_cast<std::size_t>(local_rank)];
  spec.outer = context_.outer;
  auto failure = group_.start(worker, spec);
  if (!failure) health_.add(local_rank, group_.workers().back().pid, spec.environment);
  return failure;
}

void Attempt::supervise() {
  while (group_.running() > 0 && stuck_.empty()) {
    on_events(context_.events.wait(next_deadline(), &streams_, context_.consoles));
    follow_orders();
    on_time(Clock::now());
  }
  streams_.carry_rest();
  end_descendants();
}

void Attempt::on_events(const Events& events) {
  if (events.is_guardian_gone && !context_.is_guardian_gone) {
    context_.is_guardian_gone = true;
    kill_all();
  }
  for (const int signal : events.passed_signals) group_.signal_workers(signal);
  for (const int signal : events.stop_signals) {
    if (note_stop(context_, signal)) {
      print(signal_name(signal) + ": passed to the workers; those still running after " +
            seconds_text(context_.options.grace) + (signal == SIGINT ? ", or at the next ctrl-C," : "") +
            " get SIGKILL");
      if (context_.peers) context_.peers->on_stop_signal(signal);
      is_stopping_ = false;  // also where a failure has begun to end them: the launcher's time counts
      stop(signal, Seconds(context_.options.grace));
    } else if (signal == SIGINT) {
      kill_all();
    }
  }
  reap();
}

void Attempt::reap() {
  const auto changes = group_.reap();
  for (const WorkerProcess* worker : changes.stopped) {
    print(rank_text(*worker) + " on " + context_.host + " is stopped; to continue it: kill -CONT " +
          std::to_string(worker->pid));
    if (is_stopping_) group_.continue_stopped();
  }
  for (const WorkerProcess* worker : changes.continued) print(rank_text(*worker) + " is continued");
  for (const WorkerProcess* worker : changes.ended) {
    health_.remove(worker->local_rank);
    on_ended(*worker);
  }
  if (group_.running() == 0) return;
  if (group_.has_ended_well() && barrier_at_ == SteadyTime::max() && !is_stopping_) begin_exit_barrier();
}

void Attempt::on_ended(const WorkerProcess& worker) {
  if (worker.wait_status == 0 || is_stopping_) return;
  if (WIFEXITED(worker.wait_status) && WEXITSTATUS(worker.wait_status) == kRequeueExitCode) {
    // The others are about to end in the same way, after their part of the checkpoint.
    if (stop_at_ == SteadyTime::max()) stop_at_ = after(Seconds(context_.options.grace));
    return;
  }
  const WorkerReport report = report_of(worker, context_.host, started_);
  print(first_line(report));
  if (context_.peers) context_.peers->on_failure(report);
  stop(SIGTERM, Seconds(context_.options.grace));
}

void Attempt::follow_orders() {
  if (!context_.peers) return;
  const Peers::Orders orders = context_.peers->take_orders();
  if (orders.stops_workers) stop(SIGTERM, Seconds(context_.options.grace));
  if (is_stopping_) return;
  if (orders.stops_after_grace && stop_at_ == SteadyTime::max()) stop_at_ = after(Seconds(context_.options.grace));
  if (orders.begins_exit_barrier && barrier_at_ == SteadyTime::max()) begin_exit_barrier();
}

void Attempt::stop(int signal, Seconds grace) {
  if (is_stopping_) return;
  is_stopping_ = true;
  stop_at_ = barrier_at_ = SteadyTime::max();
  group_.signal_groups(signal);
  kill_at_ = std::min(kill_at_, after(grace));
  group_.continue_stopped();  // so that it gets the signal
}

void Attempt::kill_all() {
  is_stopping_ = true;
  stop_at_ = barrier_at_ = kill_at_ = SteadyTime::max();
  group_.signal_groups(SIGKILL);
  if (give_up_at_ == SteadyTime::max()) give_up_at_ = after(kKillDeadline);
}

void Attempt::begin_exit_barrier() {
  barrier_at_ = after(Seconds(context_.options.exit_barrier));
  cpu_time_at_barrier_ = cpu_seconds_of(group_.running_pids());
}

// A rank that still computes, as one that evaluates or saves alone, is left alone.
void Attempt::check_exit_barrier() {
  const double used = cpu_seconds_of(group_.running_pids()) - cpu_time_at_barrier_;
  if (used > kIdle * context_.options.exit_barrier) return begin_exit_barrier();
  std::string ranks;
  for (const WorkerProcess& worker : group_.workers()) {
    if (worker.is_running) ranks += (ranks.empty() ? "" : ", ") + rank_text(worker);
  }
  const std::string reason = "used no CPU time for " + seconds_text(context_.options.exit_barrier) +
                             " after other workers had ended (--exit-barrier)";
  print(ranks + " on " + context_.host + " " + reason + ": killed");
  for (const WorkerProcess& worker : group_.workers()) {
    if (worker.is_running) group_.kill_worker(worker.local_rank, reason);
  }
  is_stopping_ = true;
  barrier_at_ = SteadyTime::max();
  give_up_at_ = after(kKillDeadline);
}

SteadyTime Attempt::next_deadline() const {
  return std::min(
      {stop_at_, kill_at_, give_up_at_, barrier_at_, is_stopping_ ? SteadyTime::max() : health_.next_due()});
}

void Attempt::on_time(SteadyTime now) {
  if (!is_stopping_) {
    for (const auto& failure : health_.step()) {
      const std::string reason = "its health check failed: " + failure.reason;
      print("rank " + std::to_string(facts_.first_rank + failure.local_rank) + " on " + context_.host + ": " + reason +
            ": killed");
      group_.kill_worker(failure.local_rank, reason);
      health_.remove(failure.local_rank);
      // One in uninterruptible sleep does not end: then the others are ended without it.
      stop_at_ = std::min(stop_at_, after(kKillDeadline));
    }
  }
  if (now >= stop_at_) stop(SIGTERM, Seconds(context_.options.grace));
  if (now >= kill_at_) {
    print("workers still running " + seconds_text(context_.options.grace) + " after the signal get SIGKILL");
    kill_all();
  }
  if (now >= barrier_at_) check_exit_barrier();
  if (now >= give_up_at_) stuck_ = group_.running_pids();
}

// What the workers started and left: it may hold their GPUs and ports. After a success it is left alone.
void Attempt::end_descendants() {
  const auto& workers = group_.workers();
  const bool has_failed =
      std::any_of(workers.begin(), workers.end(), [](const WorkerProcess& worker) { return worker.wait_status != 0; });
  if (!has_failed && context_.stop_signal == 0) return;
  std::vector<int> kept = context_.peers ? context_.peers->helpers() : std::vector<int>();
  const std::size_t helpers = kept.size();
  const auto is_left = [&] { return children_of(getpid()).size() > helpers; };
  // The end of the worker that a user asked for may leave one of its own that is still saving.
  const auto reap_all = [] {
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
  };
  reap_all();
  while (context_.stop_signal != 0 && kill_at_ != SteadyTime::max() && Clock::now() < kill_at_ && is_left()) {
    const Events events = context_.events.wait(kill_at_, &streams_, context_.consoles);
    reap_all();
    context_.is_guardian_gone = context_.is_guardian_gone || events.is_guardian_gone;
    for (const int signal : events.stop_signals) (void)note_stop(context_, signal);
    if (context_.is_guardian_gone || !events.stop_signals.empty()) break;
  }
  kept.insert(kept.end(), stuck_.begin(), stuck_.end());
  const auto left = kill_descendants(kept);
  stuck_.insert(stuck_.end(), left.begin(), left.end());
}

}  // namespace torchbridge
