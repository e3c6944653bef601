// How many workers --nproc-per-node means on this machine.
#pragma once

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"
#include "bridge/binding/machine.h"
#include "bridge/run_values/run_options.h"

namespace torchbridge {

// kGpu: the GPUs that this process may use (CUDA_VISIBLE_DEVICES counts), an error without one;
// kCpu: the CPUs that it may run on; kAuto: kGpu where there is one, else kCpu. `is_whole_node`:
// this process is the one task that a launcher started on its node.
Result<int> worker_count(const WorkersPerNode& workers, bool is_whole_node,
                         const EnvMap& environment, const Machine& machine);

}  // namespace torchbridge
