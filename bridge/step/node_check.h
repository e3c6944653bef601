// check= and explain: the tasks of a step wait for each other before any program starts, which
// proves that they reach rank 0's node.
#pragma once

#include <string>

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"
#include "bridge/step/explain.h"
#include "bridge/step/step_plan.h"

namespace torchbridge {

struct NodeCheck {
  // Another possible cause of a missing or unreachable node; appended to messages.
  std::string hint;
  // What makes the text for options.explain.
  decltype(&explain) describe = &explain;
};

// Collective: returns when all tasks of the step have arrived. The first task of each node connects
// to rank 0's node at MASTER_ADDR and MASTER_PORT, which must be free or reserved. `environment` is
// the program's. On rank 0 the result is the text of check.describe, elsewhere it is empty. The
// timeout is options.check, or kDefaultCheckS where that is not set. The error names the nodes that
// do not reach each other; it is reported_elsewhere where rank 0, or the first task of the node,
// has the same error.
Result<std::string> check_nodes(const StepPlan& plan, const EnvMap& environment,
                                const NodeCheck& check = {});

}  // namespace torchbridge
