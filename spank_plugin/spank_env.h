// Gives a Slurm task torchrun's environment.
#pragma once

#include <torchbridge/core/env_map.h>
#include <torchbridge/core/options.h>
#include <torchbridge/core/result.h>
#include <torchbridge/core/torch_env.h>

#include <vector>

namespace torchbridge {

// What to set for one task, and what to tell the user about it.
struct TaskEnvironment {
  TorchEnv env;
  std::vector<Variable> variables;
  std::vector<std::string> notes;  // one line each
};

// From the environment that Slurm made for the task. Resolves the name of the step's first node, and on that node looks
// whether the port is free, so call it in the task's own process, with the user's rights. The error is the user's.
Result<TaskEnvironment> task_environment(const EnvMap& environment, const Options& options);

// Whether this task speaks for the step: the launcher's rank 0, or a task that cannot tell which it is.
bool speaks_for_step(const EnvMap& environment);

}  // namespace torchbridge
