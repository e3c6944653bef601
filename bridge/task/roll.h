// The nodes of a step meet before any program starts: no rank shall wait for a node that cannot come.
#pragma once

#include <functional>
#include <string>

#include <torchbridge/core/result.h>
#include <torchbridge/net/roll_call.h>
#include <torchbridge/task/step_plan.h>

namespace torchbridge {

// What the caller adds to what is said.
struct MeetingWords {
  // Why this task cannot go on, with its rank and node where it is not rank 0; empty where it can. With `report` such tasks come to the meeting all the same, for the others to end with them.
  std::string failure;
  // By rank 0, before the others hear of it: one failure of the step.
  std::function<void(const std::string&)> report;
  MeetingPlaces elsewhere;  // for a rank 0 that cannot listen on MASTER_PORT; may be empty
  std::string secret;                               // of this step, which all its tasks know; without one others on these nodes could answer
  std::string hint;                                 // where a node does not come, or is not reached
  std::function<void(const std::string&)> waiting;  // with the names of nodes that have not come after half a minute; by one or two nodes
};

// Collective: nobody returns before all tasks of the step are here. The tasks of a node wait for its first one, which calls rank 0's
// node. `environment` is that which the program will have. On rank 0 the result is the table of
// `explain`, elsewhere it is empty. The error says who does not reach whom; it is reported_elsewhere where another task has the reason, or where `report` got it.
// Call it while MASTER_PORT is free or reserved; a rank 0 that has neither listens elsewhere. Waits as long as `check` says; where it says nothing, ten minutes, as torchrun.
Result<std::string> meet_nodes(const StepPlan& plan, const EnvMap& environment, const Options& options,
                               const MeetingWords& words = {});

}  // namespace torchbridge
