// How a rank that cannot go on ends the step of Slurm that it is in: the others would wait for it.
#pragma once

#include "bridge/base/env_map.h"

namespace torchbridge {

// Lets Slurm's command scancel end the step, where `environment` is that of a task of srun with
// other tasks; does nothing where there is no scancel, and for ranks of mpirun, which ends them. In a step of many
// nodes after a random time of up to two seconds, as many nodes may fail in the same instant. Stays until Slurm ends
// this process with the others, at most two seconds: meanwhile other tasks of this node that fail alike leave the
// report to it.
void end_step(const EnvMap& environment);

}  // namespace torchbridge
