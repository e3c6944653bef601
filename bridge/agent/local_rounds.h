// The rounds of a run on one node: the agent decides itself.
#pragma once

#include "bridge/agent/restart_budget.h"
#include "bridge/agent/rounds.h"
#include "bridge/supervision/attempt.h"

namespace torchbridge {

class LocalRounds : public Rounds {
 public:
  // `report` has program, run_id and host. References must outlive this object.
  LocalRounds(AgentContext& context, RestartBudget& budget, int workers, RunReport report);

  std::variant<Round, RunEnd> next() override;
  void conclude(const AttemptReport& attempt) override;
  void conclude(const StartFailure& failure) override { start_failure_ = failure; }

 private:
  std::variant<Round, RunEnd> begin() const;
  RunEnd end(int exit_code);
  void wait_before_restart(std::chrono::duration<double> delay);

  AgentContext& context_;
  RestartBudget& budget_;
  int workers_;
  RunReport report_;
  std::optional<StartFailure> start_failure_;
};

}  // namespace torchbridge
