// Requests to Slurm's controller. None may be made in slurm_spank_user_init: from Slurm 23.02 on
// slurmstepd holds a lock there that every request takes, and the process ends ("Resource deadlock
// avoided"). None may be made in a task either: it may be in a container, where libslurm's call of
// the resolver loads libraries of the image.
#pragma once

#include <optional>
#include <string>

#include "bridge/base/result.h"
#include "bridge/core/launch_options.h"
#include "bridge/core/step_record.h"
#include "spank_plugin/failure_listener.h"
#include "spank_plugin/step.h"
#include "spank_plugin/step_components.h"

namespace torchbridge {

// The record of the step (bridge/core/step_record.h), by one request for each component. Empty,
// without a request, where the environment contains the placement of the ranks; empty too where a
// component has ended. In srun the record also holds the address of rank 0's node where the nodes'
// names do not resolve.
Result<std::string> record_of_step(spank_t spank, const EnvMap& environment, int world_size,
                                   const LaunchOptions& options, bool in_srun);

// Whether the environment contains the placement of the ranks. Makes no request.
bool has_placement(spank_t spank, const EnvMap& environment, int world_size);

// The NodeAddr of a node; empty where it is unknown.
std::string node_addr_of(std::string name);

// kEnds where Slurm ends the tasks of the step without a request, and may give them time to save:
// the job is cancelled, preempted or at its time limit, or KillOnBadExit is set in slurm.conf.
// kRuns where the controller does not answer. For srun: two requests.
StepState state_of_step(const StepIds& ids);

// Requests SIGKILL for all tasks of a step, with the rights of the caller. Does nothing without
// ids; errors are ignored. In a heterogeneous job the request names the leader's step, which Slurm
// ends in all components.
void kill_step(const std::optional<StepIds>& ids);

}  // namespace torchbridge
