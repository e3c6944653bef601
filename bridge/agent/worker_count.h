// How many workers --nproc-per-node means on this machine.
#pragma once

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"
#include "bridge/binding/machine.h"

namespace torchbridge {

// Empty: auto for `launched_tasks` 1, the one task of a launcher, else 1. A number; gpu: the GPUs that this process may
// use (CUDA_VISIBLE_DEVICES counts), at least one; cpu: the CPUs that it may run on; auto: gpu where there is one, else
// cpu. An error names the value.
Result<int> worker_count(const std::string& nproc_per_node, int launched_tasks, const EnvMap& environment,
                         const Machine& machine);

// This process among the tasks that Slurm or mpirun started; count 0 where neither did. An error of the launcher's
// variables.
struct LaunchedTask {
  int rank = 0, count = 0;
};
Result<LaunchedTask> launched_task(const EnvMap& environment);

}  // namespace torchbridge
