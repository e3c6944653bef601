// check= and explain: the tasks of a step wait for each other before any program starts, and prove
// that they reach rank 0's node.
#pragma once

#include <string>

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"
#include "bridge/step/step_plan.h"

namespace torchbridge {

struct NodeCheck {
  std::string token;  // of this step, which all its tasks know; without one others on these nodes
                      // could answer
  std::string hint;   // what else may be wrong where a node does not come, or is not reached; for messages
};

// Collective: nobody returns before all tasks of the step are here. The first task of each node
// calls rank 0's node at MASTER_ADDR and MASTER_PORT, which must be free or reserved. `environment`
// is that which the program will have. On rank 0 the result is the table of `explain`, elsewhere it
// is empty. Waits as long as `check` says, and a second where it says nothing. The error says who
// does not reach whom; reported_elsewhere where rank 0, or the first task of the node, has the
// same.
Result<std::string> check_nodes(const StepPlan& plan, const EnvMap& environment, const NodeCheck& check = {});

}  // namespace torchbridge
