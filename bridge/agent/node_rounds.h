// The rounds of a run over several nodes: the coordinator decides, which one of the agents has in
// its process.
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
  // `report` has program, run_id and host. References must outlive this object, which the events of
  // the context must have as their peers. An error where the coordinator cannot be opened.
  static Result<std::unique_ptr<NodeRounds>> open(AgentContext& context, RestartBudget& budget,
                                                  RunEndpoint endpoint, int workers,
                                                  const RunReport& report);

  std::variant<Round, RunEnd> next() override;
  void conclude(const AttemptReport& attempt) override;
  void conclude(const StartFailure& failure) override;

  std::vector<pollfd> poll_entries() const override;
  SteadyTime next_deadline() const override;
  void carry() override;
  void on_failure(const WorkerReport& worker) override { client_->send(WorkerFailed{worker}); }
  void on_stop_signal(int signal) override;
  std::vector<int> helpers() const override;
  Orders take_orders() override { return std::exchange(orders_, {}); }

 private:
  NodeRounds(AgentContext& context, RestartBudget& budget, RunEndpoint endpoint, int workers,
             RunReport report);
  Status begin_to_coordinate(Socket listener, int restarts);
  // Coordinates if nobody has answered at the endpoint, and this agent can listen there by now.
  void listen_late();
  // Connects, where the record names it to another coordinator, or to this agent itself.
  Status find_coordinator(bool is_first);
  void connect(const Endpoint& coordinator, bool is_first);
  // Of agents whose lines are in one place, the first that does not coordinate.
  bool is_reporter() const;
  void report_wait(SteadyTime now);
  void report_unknown_coordinator();
  void note_restarts();
  void receive(const AgentMessage& message);
  // Else it is whatever program listens at the endpoint.
  bool knows_coordinator() const;
  // Without the success of this agent's workers the run has none.
  bool is_success_owed() const;
  // Waits for `fact`, or until `latest`; false where the run is over for this agent first.
  bool wait_until(const std::function<bool()>& fact, SteadyTime latest = SteadyTime::max());
  bool can_join_again() const;
  // A coordinator to connect to; an error where none is found before `deadline_`.
  Status search_again();
  bool pause_before_search();
  // Sends Ready. Where it cannot, as where the address of this node is away with its link, tries
  // again for join_timeout. False where the run is over for this agent first.
  bool get_ready();
  Status be_ready();
  std::string own_address() const;
  void leave();  // after a signal
  Round round_of(const StartRound& start);
  RunEnd end_of_run();
  void finish_coordination();

  AgentContext& context_;
  RestartBudget& budget_;
  RunEndpoint endpoint_;
  RunReport report_;
  RendezvousConf times_;
  Join join_;
  SteadyTime searching_since_, deadline_;  // to join, or to join again
  bool has_reported_wait_ = false;
  std::optional<CoordinatorServer> server_;  // in the agent that coordinates
  std::optional<CoordinatorClient> client_;
  bool has_reached_one_ = false;  // a coordinator
  Socket store_port_;
  bool is_in_round_ = false;
  bool is_stopped_ = false;  // the workers of this round, which have not all ended by themselves
  // To a coordinator that is not known: its workers have not ended by themselves with 0 in its last
  // round, or there was none.
  bool owes_success_ = true;
  bool has_reported_unknown_coordinator_ = false;
  std::optional<RunReport> report_at_end_;  // of the agent that coordinated
  std::optional<StartRound> start_;
  std::optional<EndRun> end_;
  std::string printed_;                  // the coordinator's last line, where it is this process
  int endpoint_restarts_ = 0;            // that the record has
  std::vector<AttemptReport> attempts_;  // of this agent's workers
  Orders orders_;
};

}  // namespace torchbridge
