// The rounds of a run over several nodes: the coordinator decides, which one of the agents has in its process.
#pragma once

#include <memory>
#include <vector>

#include "bridge/agent/restart_budget.h"
#include "bridge/agent/rounds.h"
#include "bridge/agent/run_endpoint.h"
#include "bridge/coordination/coordinator_client.h"
#include "bridge/coordination/coordinator_server.h"
#include "bridge/supervision/attempt.h"
#include "bridge/supervision/peers.h"

namespace torchbridge {

class NodeRounds : public Rounds, public Peers {
 public:
  // `report` has program, run_id and host. References must outlive this object, which the events of the context must
  // have as their peers. An error where the coordinator cannot be opened.
  static Result<std::unique_ptr<NodeRounds>> open(AgentContext& context, RestartBudget& budget, RunEndpoint endpoint,
                                                  int workers, const RunReport& report);

  std::variant<Round, RunEnd> next() override;
  void conclude(const AttemptReport& attempt, bool can_restart) override;
  void conclude(const StartFailure& failure) override;

  std::vector<pollfd> poll_entries() const override;
  SteadyTime next_deadline() const override;
  void carry() override;
  void on_failure(const WorkerReport& worker) override { client_.send(Failed{worker}); }
  void on_stop_signal(int signal) override;
  Orders take_orders() override { return std::exchange(orders_, {}); }

 private:
  NodeRounds(AgentContext& context, RestartBudget& budget, const RunEndpoint& endpoint, int workers);
  CoordinatorClient client(bool is_first) const;
  void receive(const AgentMessage& message);
  // Waits for `fact`; false where the run is over for this agent first.
  bool wait_until(const std::function<bool()>& fact);
  bool can_join_again() const;
  Status be_ready();
  Round round_of(const StartRound& start);
  RunEnd end_of_run();
  void finish_coordination();

  AgentContext& context_;
  RestartBudget& budget_;
  Endpoint coordinator_;
  Join join_;
  std::chrono::duration<double> join_timeout_, close_timeout_;
  std::optional<CoordinatorServer> server_;  // in the agent that coordinates
  CoordinatorClient client_;
  std::optional<Endpoint> store_address_;  // to give; else that of the connection
  Socket store_port_;
  std::optional<StartRound> start_;
  std::optional<EndRun> end_;
  std::vector<AttemptEnd> ends_;  // of this agent's workers
  Orders orders_;
};

}  // namespace torchbridge
