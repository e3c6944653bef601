// Gives a Slurm task torchrun's environment.
#pragma once

#include <string>
#include <vector>

#include <torchbridge/core/env_map.h>
#include <torchbridge/core/options.h>
#include <torchbridge/core/result.h>
#include <torchbridge/core/task_map.h>
#include <torchbridge/core/torch_env.h>

namespace torchbridge {

// What is the same for all tasks of a step, apart from each task's own place in it.
struct StepPlan {
  LaunchFacts facts;
  TaskMap map;
  TorchEnv env;                     // master as computed, numeric where the name of the node resolves
  Endpoint master;                  // where rank 0 will really listen: what the user exported is kept
  std::vector<Variable> variables;  // to set: torchrun's, less what the user exported
};

// From the environment that Slurm made for the task. Resolves a host name, so call it in the task's own process with the
// user's rights. An error is found by every task of the step alike.
Result<StepPlan> plan_step(const EnvMap& environment, const Options& options);

struct TaskEnvironment {
  std::vector<Variable> variables;
  std::vector<std::string> notes;  // for the user, one line each
};

// The rest, which is this task's own: devices, threads, and on rank 0 whether the port is free. An error may be found by
// this task alone.
Result<TaskEnvironment> task_environment(const StepPlan& plan, const EnvMap& environment, const Options& options);

}  // namespace torchbridge
