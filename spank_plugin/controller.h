// What Slurm's controller is asked. From Slurm 23.02 on a process that asks in slurm_spank_user_init is ended ("Resource deadlock avoided"): slurmstepd holds
// a lock there that every request takes. It gives the lock back around slurm_spank_task_init.
#pragma once

#include <cstdint>
#include <optional>

#include "placement.h"

namespace torchbridge {

// One request, under the rights of the caller. `number` is that of a component in a heterogeneous step of an ordinary job.
// Empty where there is no such step, or no longer.
Result<Component> ask_component(std::uint32_t job_id, std::uint32_t step_id, std::optional<std::uint32_t> number);

// Asks it to end all tasks of a step by SIGKILL. One request, under the rights of the caller; nothing tells whether it is heeded.
void kill_step(std::uint32_t job_id, std::uint32_t step_id);

}  // namespace torchbridge
