// How a rank that cannot go on ends the step of Slurm that it is in: the others would wait for it.
#pragma once

#include <torchbridge/core/env_map.h>

namespace torchbridge {

// Lets Slurm's command scancel end the step, where `environment` is that of a task of srun with other tasks; does nothing where
// there is none, or no scancel. In a step of many nodes after a random time of up to two seconds, as many nodes may fail in the same
// instant. Returns when scancel has begun; it goes on when this process has ended.
void end_step(const EnvMap& environment);

}  // namespace torchbridge
