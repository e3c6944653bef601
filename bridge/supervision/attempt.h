// One attempt of a run: its workers from their start to the end of the last.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bridge/run_values/run_options.h"
#include "bridge/run_values/run_report.h"
#include "bridge/start/preloaded_python.h"
#include "bridge/start/process.h"
#include "bridge/supervision/agent_events.h"
#include "bridge/supervision/health_checks.h"
#include "bridge/supervision/worker_environment.h"
#include "bridge/supervision/worker_group.h"
#include "bridge/supervision/worker_streams.h"

namespace torchbridge {

// What all attempts of an agent share. All references must outlive them.
struct AgentContext {
  const RunOptions& options;
  const EnvMap& environment;
  const std::string launch;   // of the agent: Setter::launch
  std::function<int()> body;  // what the workers run instead of options.program; or empty
  AgentEvents& events;
  Consoles& consoles;
  RunFolder& folder;
  std::string host;
  OuterState outer;
  std::vector<CpuSet> worker_cpus;    // by local rank; empty: those of the agent
  Peers* peers = nullptr;             // or null: one node
  PreloadedPython* python = nullptr;  // or null: without --preload
  int stop_signal = 0;                // that a user or the launcher sent to end the run; 0: none
  SteadyTime output_until = SteadyTime::max();  // then output that its reader has not taken is cut
  bool is_guardian_gone = false;
  bool leaves_agents = false;  // the run is over, and other agents of it may not have ended
  // Continues those of the launcher's step that are stopped; empty: there are no others.
  std::function<void()> continue_agents = {};
};

// Takes a signal that ends the run: from the first one the output has --grace, too, and from the
// next ctrl-C no more time. True for the first.
bool note_stop(AgentContext& context, int signal);

// Waits as AgentEvents::wait, outside an attempt without `streams`, and takes what ends the run.
Events wait_for_events(AgentContext& context, SteadyTime until, WorkerStreams* streams = nullptr);

// One line on standard error, after what workers printed before it.
void print_line(const AgentContext& context, const std::string& message);

class Attempt {
 public:
  Attempt(AgentContext& context, const AttemptFacts& facts);

  // Starts all workers, none where a signal or an order ends the attempt before; rank 0 inherits
  // `store_port` where it is open. An error where a worker cannot be started; the others are ended
  // then.
  std::optional<StartFailure> start(const Socket& store_port);

  // Until no worker runs. The first that fails ends the others: SIGTERM, and SIGKILL after --grace.
  void supervise();

  const std::vector<WorkerProcess>& workers() const { return group_.workers(); }
  // Of one that has ended with another status than 0, or is stuck.
  WorkerReport report_of(const WorkerProcess& worker) const;
  const AttemptFacts& facts() const { return facts_; }
  // Of workers that did not end kKillDeadline after SIGKILL: in uninterruptible sleep.
  const std::vector<int>& stuck() const { return stuck_; }
  std::chrono::system_clock::time_point started() const { return started_; }

 private:
  std::optional<StartFailure> start_worker(int local_rank, const Socket& store_port);
  void wait_for_python();
  void print_message_of_python();
  void step();
  void reap();
  void on_ended(const WorkerProcess& worker);
  void on_failed(const WorkerProcess& worker);
  void on_events(const Events& events);
  void on_time(SteadyTime now);
  void follow_orders();
  SteadyTime next_deadline() const;
  void stop(ReceivedSignal signal);
  void kill_all();
  void kill_unhealthy(int local_rank, const std::string& reason);
  void begin_exit_barrier();
  void check_exit_barrier();
  void end_descendants();
  void wait_for_descendants(const std::vector<int>& kept);
  void print(const std::string& message) const { print_line(context_, message); }

  AgentContext& context_;
  AttemptFacts facts_;
  WorkerStreams streams_;
  WorkerGroup group_;
  HealthChecks health_;
  SleepWatch sleep_;
  std::chrono::system_clock::time_point started_ = std::chrono::system_clock::now();

  // Deadlines; max() where there is none.
  // SIGTERM for those that still run after one requested a requeue.
  SteadyTime stop_at_ = SteadyTime::max();
  SteadyTime kill_at_ = SteadyTime::max();     // SIGKILL
  SteadyTime give_up_at_ = SteadyTime::max();  // no more waiting
  SteadyTime barrier_at_ = SteadyTime::max();
  SteadyTime failure_at_ = SteadyTime::max();  // that of `unexplained_` counts as one by itself
  std::optional<WorkerReport> failure_;        // that ended the others
  // Ended as by a signal that this agent has not got yet.
  const WorkerProcess* unexplained_ = nullptr;
  // Seconds that the running workers had used when the exit barrier began.
  double cpu_time_at_barrier_ = 0;
  bool is_stopping_ = false;
  // By workers of other nodes, which may have ended before those of this one have started.
  bool is_barrier_ordered_ = false;
  bool has_early_signal_ = false;  // its sender may have missed workers that were started later
  std::vector<int> stuck_;
};

}  // namespace torchbridge
