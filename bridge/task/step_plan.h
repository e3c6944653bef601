// What a launcher's facts and the options make of a whole step.
#pragma once

#include <vector>

#include <torchbridge/core/env_map.h>
#include <torchbridge/core/launcher.h>
#include <torchbridge/core/options.h>
#include <torchbridge/core/result.h>
#include <torchbridge/core/task_map.h>
#include <torchbridge/core/torch_env.h>

namespace torchbridge {

// The same for all tasks of the step, apart from each task's own place in it.
struct StepPlan {
  LaunchFacts facts;
  TaskMap map;
  TorchEnv env;                     // master as computed, numeric where the name of the node resolves
  Endpoint master;                  // where rank 0 will really listen: what the user exported is kept
  int master_node = 0;              // the node that holds rank 0
};

// For a launcher that names the nodes, as Slurm. Resolves a host name, so call it in the task's own process with the user's
// rights. An error is found by every task of the step alike.
Result<StepPlan> plan_step(LaunchFacts facts, const EnvMap& environment, const Options& options);

// Where the options leave the address to rank 0's node (see agree_on_address): completes the plan by it, unless the user
// exported MASTER_ADDR. Collective. The error is reported_elsewhere where another task has the reason.
Status settle_address(StepPlan& plan, const Options& options);

// For a launcher that does not: `master` was agreed among the ranks.
Result<StepPlan> plan_step_at(Endpoint master, LaunchFacts facts, const EnvMap& environment, const Options& options);

}  // namespace torchbridge
