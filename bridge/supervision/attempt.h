// One attempt of a run: its workers from their start to the end of the last.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "bridge/run_values/run_options.h"
#include "bridge/supervision/agent_events.h"
#include "bridge/supervision/health_checks.h"
#include "bridge/supervision/process.h"
#include "bridge/supervision/worker_environment.h"
#include "bridge/supervision/worker_group.h"
#include "bridge/supervision/worker_streams.h"

namespace torchbridge {

// What all attempts of an agent share. All references must outlive them.
struct AgentContext {
  const RunOptions& options;
  const EnvMap& environment;
  std::function<int()> body;  // what the workers run instead of options.program; or empty
  AgentEvents& events;
  Consoles& consoles;
  RunFolder& folder;
  std::string host;
  OuterState outer;
  std::vector<CpuSet> worker_cpus;              // by local rank; empty: those of the agent
  Peers* peers = nullptr;                       // or null: one node
  int stop_signal = 0;                          // that a user or the launcher sent to end the run; 0: none
  SteadyTime output_until = SteadyTime::max();  // then output that its reader has not taken is cut
  bool is_guardian_gone = false;
};

// Takes a signal that ends the run: from the first one the output has --grace, too, and from the next ctrl-C no more
// time. True for the first.
bool note_stop(AgentContext& context, int signal);

// One line on standard error, after what workers printed before it.
void print_line(const AgentContext& context, const std::string& message);

class Attempt {
 public:
  Attempt(AgentContext& context, const AttemptFacts& facts);

  // Starts all workers; rank 0 inherits `store_port` where it is open. An error where a worker cannot be started; the
  // others are ended then.
  std::optional<StartFailure> start(const Socket& store_port);

  // Until no worker runs. The first that fails ends the others: SIGTERM, and SIGKILL after --grace.
  void supervise();

  const std::vector<WorkerProcess>& workers() const { return group_.workers(); }
  const AttemptFacts& facts() const { return facts_; }
  // Of workers that did not end kKillDeadline after SIGKILL: in uninterruptible sleep.
  const std::vector<int>& stuck() const { return stuck_; }
  std::chrono::system_clock::time_point started() const { return started_; }

 private:
  std::optional<StartFailure> start_worker(int local_rank, const Socket& store_port);
  void reap();
  void on_ended(const WorkerProcess& worker);
  void on_events(const Events& events);
  void on_time(SteadyTime now);
  void follow_orders();
  SteadyTime next_deadline() const;
  void stop(int signal, std::chrono::duration<double> grace);
  void kill_all();
  void begin_exit_barrier();
  void check_exit_barrier();
  void end_descendants();
  void print(const std::string& message) const { print_line(context_, message); }

  AgentContext& context_;
  AttemptFacts facts_;
  WorkerStreams streams_;
  WorkerGroup group_;
  HealthChecks health_;
  std::chrono::system_clock::time_point started_ = std::chrono::system_clock::now();

  // Deadlines; max() where there is none.
  SteadyTime stop_at_ = SteadyTime::max();     // SIGTERM for those that still run after one requested a requeue
  SteadyTime kill_at_ = SteadyTime::max();     // SIGKILL
  SteadyTime give_up_at_ = SteadyTime::max();  // no more waiting
  SteadyTime barrier_at_ = SteadyTime::max();
  double cpu_time_at_barrier_ = 0;  // seconds that the running workers had used when the exit barrier began
  bool is_stopping_ = false;
  std::vector<int> stuck_;
};

}  // namespace torchbridge
