// What Slurm's controller is asked. From Slurm 23.02 on a process that asks in slurm_spank_user_init is ended
// ("Resource deadlock avoided"): slurmstepd holds a lock there that every request takes. It gives the lock back around
// slurm_spank_task_init.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bridge/core/launch_options.h"
#include "bridge/base/result.h"
#include "bridge/core/step_record.h"
#include "spank_plugin/step.h"
#include "spank_plugin/step_components.h"

namespace torchbridge {

// The record of the step (bridge/core/step_record.h): one request for each component. Empty where the environment tells
// where each rank is, or where a component has ended already.
// In srun a third reason to ask is that the nodes' names do not resolve: then for the address of rank 0's node too.
Result<std::string> record_of_step(spank_t spank, const EnvMap& environment, int world_size,
                                   const LaunchOptions& options, bool in_srun);

// The NodeAddr of a node; empty where it is not known.
std::string node_addr_of(std::string name);

// Asks it to end all tasks of a step by SIGKILL. One request, under the rights of the caller; nothing tells whether it
// is heeded. Nothing without ids. Of a heterogeneous job the leader's step is named, which Slurm ends in all
// components.
void kill_step(const std::optional<StepIds>& ids);

}  // namespace torchbridge
