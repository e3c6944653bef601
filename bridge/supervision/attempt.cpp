#include "bridge/supervision/attempt.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/core/nested_launch.h"
#include "bridge/host/process_tree.h"
#include "bridge/supervision/guardian.h"
#include "bridge/supervision/signal_sender.h"
#include "bridge/supervision/worker_command.h"
#include "bridge/supervision/worker_report.h"

namespace torchbridge {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

// Of its time a process that waits for others uses less than this.
constexpr double kIdle = 0.01;

SteadyTime after(Seconds seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(seconds);
}

std::string rank_text(const WorkerProcess& worker) {
  return formatted("rank {} (pid {})", worker.rank, worker.pid);
}

std::vector<int> children_but(const std::vector<int>& kept) {
  std::vector<int> children = children_of(getpid());
  std::erase_if(children, [&](int child) { return std::ranges::find(kept, child) != kept.end(); });
  return children;
}

std::string names_text(const std::vector<int>& processes) {
  constexpr std::size_t kMost = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(processes.size(), kMost); ++i) {
    text += formatted("{}{} (pid {})", i > 0 ? ", " : "", printable(process_name(processes[i])),
                      processes[i]);
  }
  return processes.size() > kMost ? text + ", ..." : text;
}

// Only ctrl-C ends the time that workers and what they started have after a signal.
bool has_interrupt(const Events& events) {
  const auto& signals = events.stop_signals;
  return std::ranges::find(signals, SIGINT, &ReceivedSignal::number) != signals.end();
}

}  // namespace

void print_line(const AgentContext& context, const std::string& message) {
  const LineStyle style{context.options.log_format, "torchbridge: ", -1, "agent"};
  context.consoles.err.add(styled(style, message));
  context.consoles.err.flush();
}

bool note_stop(AgentContext& context, int signal) {
  const bool is_first = context.stop_signal == 0;
  if (is_first) context.stop_signal = signal;
  if (is_first && context.python) context.python->stop();  // no attempt follows
  if (is_first || signal == SIGINT)
    context.output_until = after(Seconds(is_first ? context.options.grace : 0));
  return is_first;
}

Events wait_for_events(AgentContext& context, SteadyTime until, WorkerStreams* streams) {
  Events events = context.events.wait(until, streams, context.consoles);
  context.is_guardian_gone = context.is_guardian_gone || events.is_guardian_gone;
  for (const auto& signal : events.stop_signals) (void)note_stop(context, signal.number);
  return events;
}

Attempt::Attempt(AgentContext& context, const AttemptFacts& facts)
    : context_(context),
      facts_(facts),
      streams_(context.options, context.folder, context.consoles,
               {.host = context.host,
                .has_colour = context.environment.get("NO_COLOR").value_or("").empty()}),
      health_(context.options.health_check, Seconds(context.options.health_check_interval),
              context.outer),
      sleep_(Seconds(context.options.uninterruptible_timeout)) {}

std::optional<StartFailure> Attempt::start(const Socket& store_port) {
  if (context_.python) wait_for_python();
  if (is_stopping_) return std::nullopt;
  for (int local_rank = 0; local_rank < facts_.workers; ++local_rank) {
    has_early_signal_ = has_early_signal_ || context_.events.has_signal();
    auto failure = start_worker(local_rank, store_port);
    if (!failure) continue;
    kill_all();
    supervise();
    return failure;
  }
  follow_orders();
  return std::nullopt;
}

std::optional<StartFailure> Attempt::start_worker(int local_rank, const Socket& store_port) {
  WorkerProcess worker;
  worker.local_rank = local_rank;
  worker.rank = facts_.ranks.first_rank + local_rank;
  worker.error_file = context_.folder.worker_file(local_rank, "error.json");
  auto output = streams_.open(local_rank, worker.rank);
  if (!output) return StartFailure{EXIT_FAILURE, output.error()};
  if (output->err.open() &&
      ((context_.options.redirects.of(local_rank) | context_.options.tee.of(local_rank)) &
       kStderr)) {
    worker.error_log = context_.folder.worker_file(local_rank, "stderr.log");
  }
  ProcessSpec spec;
  spec.environment = worker_environment(context_.environment, facts_, context_.options, local_rank,
                                        worker.error_file);
  spec.environment.set(kSetByVariable, text_of({SetBy::kRun, context_.launch}, facts_.run_id));
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
  if (!context_.worker_cpus.empty())
    spec.cpus = context_.worker_cpus[static_cast<std::size_t>(local_rank)];
  spec.outer = context_.outer;
  auto failure = group_.start(worker, spec, context_.python);
  if (!failure) health_.add(local_rank, group_.workers().back().pid, spec.environment);
  return failure;
}

void Attempt::supervise() {
  while ((group_.running() > 0 || unexplained_) && stuck_.empty()) step();
  streams_.carry_rest();
  end_descendants();
}

void Attempt::step() {
  on_events(context_.events.wait(next_deadline(), &streams_, context_.consoles));
  follow_orders();
  on_time(Clock::now());
}

// Its modules take seconds.
void Attempt::wait_for_python() {
  context_.python->ask();
  while (context_.python->is_asked() && !is_stopping_) step();
  print_message_of_python();
}

void Attempt::print_message_of_python() {
  const std::string message = context_.python ? context_.python->take_message() : "";
  if (!message.empty()) print(message);
}

void Attempt::on_events(const Events& events) {
  if (events.is_guardian_gone && !context_.is_guardian_gone) {
    context_.is_guardian_gone = true;
    kill_all();
  }
  const bool is_early = std::exchange(has_early_signal_, false);
  for (const ReceivedSignal& signal : events.passed_signals) {
    if (!signal.workers_have_it || is_early) group_.signal_workers(signal.number);
  }
  for (const ReceivedSignal& signal : events.stop_signals) {
    if (note_stop(context_, signal.number)) {
      print(formatted("{}: passed to the workers; those still running after {}{} get SIGKILL",
                      signal_name(signal.number), seconds_text(context_.options.grace),
                      signal.number == SIGINT ? ", or at the next ctrl-C," : ""));
      if (context_.peers) context_.peers->on_stop_signal(signal.number);
      // Also where a failure has begun to end them: the launcher's time counts.
      is_stopping_ = false;
      stop({signal.number, signal.workers_have_it && !is_early});
    } else if (signal.number == SIGINT) {
      kill_all();
    }
  }
  print_message_of_python();
  reap();
}

void Attempt::reap() {
  const auto changes = group_.reap();
  for (const WorkerProcess* worker : changes.stopped) {
    print(formatted("{} on {} is stopped; to continue it: kill -CONT {}", rank_text(*worker),
                    context_.host, worker->pid));
    if (is_stopping_) group_.continue_stopped();
  }
  for (const WorkerProcess* worker : changes.continued)
    print(formatted("{} is continued", rank_text(*worker)));
  for (const WorkerProcess* worker : changes.ended) {
    health_.remove(worker->local_rank);
    on_ended(*worker);
  }
  if (group_.running() == 0) {
    barrier_at_ = SteadyTime::max();
    return;
  }
  if (group_.has_ended_well() && barrier_at_ == SteadyTime::max() && !is_stopping_)
    begin_exit_barrier();
}

void Attempt::on_ended(const WorkerProcess& worker) {
  if (worker.wait_status == 0 || is_stopping_ || unexplained_) return;
  if (wants_requeue(worker.wait_status)) {
    // The others are about to end in the same way, after their part of the checkpoint.
    if (stop_at_ == SteadyTime::max()) stop_at_ = after(Seconds(context_.options.grace));
    return;
  }
  // A launcher's signal may reach a worker before it reaches this agent.
  if (!context_.events.is_stop_signal(exit_code_of(worker.wait_status) - 128))
    return on_failed(worker);
  unexplained_ = &worker;
  failure_at_ = after(kSignalSpread);
}

WorkerReport Attempt::report_of(const WorkerProcess& worker) const {
  if (failure_ && failure_->pid == worker.pid) return *failure_;
  return torchbridge::report_of(worker, context_.host, started_);
}

void Attempt::on_failed(const WorkerProcess& worker) {
  failure_ = report_of(worker);
  print(first_line(*failure_));
  if (context_.peers) context_.peers->on_failure(*failure_);
  stop({SIGTERM});
}

void Attempt::follow_orders() {
  if (!context_.peers) return;
  const Peers::Orders orders = context_.peers->take_orders();
  if (orders.stops_workers) stop({SIGTERM});
  if (is_stopping_) return;
  if (orders.stops_unless_signalled) stop_at_ = std::min(stop_at_, after(2 * kSignalSpread));
  if (orders.stops_after_grace && stop_at_ == SteadyTime::max())
    stop_at_ = after(Seconds(context_.options.grace));
  is_barrier_ordered_ = is_barrier_ordered_ || orders.begins_exit_barrier;
  if (is_barrier_ordered_ && group_.running() > 0 && barrier_at_ == SteadyTime::max())
    begin_exit_barrier();
}

void Attempt::stop(ReceivedSignal signal) {
  if (is_stopping_) return;
  is_stopping_ = true;
  unexplained_ = nullptr;
  stop_at_ = barrier_at_ = failure_at_ = SteadyTime::max();
  signal.workers_have_it ? group_.note_signal(signal.number) : group_.signal_groups(signal.number);
  kill_at_ = std::min(kill_at_, after(Seconds(context_.options.grace)));
  group_.continue_stopped();  // so that it gets the signal
}

void Attempt::kill_all() {
  is_stopping_ = true;
  unexplained_ = nullptr;
  stop_at_ = barrier_at_ = failure_at_ = kill_at_ = SteadyTime::max();
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
  const std::string reason =
      formatted("used no CPU time for {} after other workers had ended (--exit-barrier)",
                seconds_text(context_.options.exit_barrier));
  print(formatted("{} on {} {}: killed", ranks, context_.host, reason));
  for (const WorkerProcess& worker : group_.workers()) {
    if (worker.is_running) group_.kill_worker(worker.local_rank, reason);
  }
  is_stopping_ = true;
  barrier_at_ = SteadyTime::max();
  give_up_at_ = after(kKillDeadline);
}

void Attempt::kill_unhealthy(int local_rank, const std::string& reason) {
  print(formatted("rank {} on {}: {}: killed", facts_.ranks.first_rank + local_rank, context_.host,
                  reason));
  group_.kill_worker(local_rank, reason);
  health_.remove(local_rank);
  // One in uninterruptible sleep does not end: then the others are ended without it.
  stop_at_ = std::min(stop_at_, after(kKillDeadline));
}

SteadyTime Attempt::next_deadline() const {
  return std::min(
      {stop_at_, kill_at_, give_up_at_, barrier_at_, failure_at_,
       is_stopping_ ? SteadyTime::max() : std::min(health_.next_due(), sleep_.next_due())});
}

void Attempt::on_time(SteadyTime now) {
  if (!is_stopping_) {
    for (const auto& failure : health_.step()) {
      kill_unhealthy(failure.local_rank, formatted("its health check failed: {}", failure.reason));
    }
    for (const int local_rank : sleep_.step(group_.workers(), now)) {
      kill_unhealthy(local_rank,
                     formatted("in uninterruptible sleep for {} (--uninterruptible-timeout)",
                               seconds_text(context_.options.uninterruptible_timeout)));
    }
  }
  if (now >= failure_at_) {
    failure_at_ = SteadyTime::max();
    on_failed(*std::exchange(unexplained_, nullptr));
  }
  if (now >= stop_at_) stop({SIGTERM});
  if (now >= kill_at_) {
    print(formatted("workers still running {} after the signal get SIGKILL",
                    seconds_text(context_.options.grace)));
    kill_all();
  }
  if (now >= barrier_at_) check_exit_barrier();
  if (now >= give_up_at_) stuck_ = group_.running_pids();
}

// They may be saving. Those that do not end by the same signal soon are named.
void Attempt::wait_for_descendants(const std::vector<int>& kept) {
  SteadyTime name_at = after(Seconds(1));
  for (;;) {
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    const std::vector<int> left = children_but(kept);
    const SteadyTime now = Clock::now();
    if (left.empty() || now >= kill_at_) return;
    if (now >= name_at) {
      name_at = SteadyTime::max();
      print(formatted(
          "processes on {} still run that the workers started: {}: they get SIGKILL {} after the "
          "signal (--grace): let the program end them, or give a shorter --grace",
          context_.host, names_text(left), seconds_text(context_.options.grace)));
    }
    const Events events = wait_for_events(context_, std::min(kill_at_, name_at), &streams_);
    if (context_.is_guardian_gone || has_interrupt(events)) return;
  }
}

// What the workers started and left: it may hold their GPUs and ports. After a success it is left
// alone.
void Attempt::end_descendants() {
  const auto& workers = group_.workers();
  const bool has_failed = std::ranges::any_of(
      workers, [](const WorkerProcess& worker) { return worker.wait_status != 0; });
  if (!has_failed && context_.stop_signal == 0) return;
  std::vector<int> kept = context_.peers ? context_.peers->helpers() : std::vector<int>();
  if (context_.python) kept.push_back(context_.python->pid());
  // The end of the worker that a user asked for may leave one of its own that is still saving.
  if (context_.stop_signal != 0 && kill_at_ != SteadyTime::max()) wait_for_descendants(kept);
  kept.insert(kept.end(), stuck_.begin(), stuck_.end());
  const auto left = kill_descendants(kept);
  stuck_.insert(stuck_.end(), left.begin(), left.end());
}

}  // namespace torchbridge
