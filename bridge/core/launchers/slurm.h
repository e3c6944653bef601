// Slurm: the variables of a task in a job step (22.05; man srun, "OUTPUT ENVIRONMENT VARIABLES").
#pragma once

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"
#include "bridge/core/launch_facts.h"

namespace torchbridge {

// True inside a task of a step. A batch script and the shell of a salloc have SLURM_JOB_ID but are
// no step's task, also where Slurm runs them in a step of its own
// (LaunchParameters=use_interactive_step).
bool detect_slurm(const EnvMap& environment);
Result<LaunchFacts> read_slurm(const EnvMap& environment);
// Only what is the same for all tasks of the step: without the position of a task and the ranks of
// its node.
Result<LaunchFacts> read_slurm_step(const EnvMap& environment);

}  // namespace torchbridge
