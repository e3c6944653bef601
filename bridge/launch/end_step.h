// Ends, or continues, the Slurm step of a task that others wait for, or that waits for others.
#pragma once

#include "bridge/launch/launch_origin.h"

namespace torchbridge {

// Whether this is a task of srun that has other tasks, and has not the terminal of `srun --pty`.
bool has_step_of_several(const LaunchOrigin& origin);

// Runs Slurm's scancel for the step of a task of srun that has other tasks.
// Does nothing where there is no scancel, in the terminal of `srun --pty`, and for ranks of mpirun,
// which ends them itself. Before, it waits half a second: while this process lives, tasks of this
// node with the same error do not report it, and tasks that start later than this one may be killed
// later too. In a step of many nodes it waits a random time of up to two seconds more, as many
// nodes may fail in the same instant. Then waits until Slurm ends this process with the others, at
// most two seconds.
void end_step(const LaunchOrigin& origin);

// Sends SIGCONT to all processes of that step by scancel, which it does not wait for. REQUIRES:
// has_step_of_several().
void continue_step(const LaunchOrigin& origin);

}  // namespace torchbridge
