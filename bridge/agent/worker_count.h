// How many workers --nproc-per-node means on this machine.
#pragma once

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"
#include "bridge/binding/machine.h"

namespace torchbridge {

// Empty: auto where `is_whole_node`, the one task that a launcher started on this node, else 1. A number; gpu: the GPUs
// that this process may use (CUDA_VISIBLE_DEVICES counts), at least one; cpu: the CPUs that it may run on; auto: gpu
// where there is one, else cpu. An error names the value.
Result<int> worker_count(const std::string& nproc_per_node, bool is_whole_node, const EnvMap& environment,
                         const Machine& machine);

}  // namespace torchbridge
