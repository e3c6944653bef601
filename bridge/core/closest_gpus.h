// Gives each task of a node the GPU nearest to its CPUs.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include <torchbridge/core/env_map.h>
#include <torchbridge/core/layout.h>
#include <torchbridge/core/machine.h>

namespace torchbridge {

// distances[task][gpu] -> the GPU of each task: no GPU twice, the sum of distances as small as can be; among such
// assignments one with the lowest GPUs, and the lower GPU for the lower task. Every task that calls it with the same table gets the
// same answer. REQUIRES: at most as many tasks as GPUs, at most kMaxGpus, rows of equal length, distances in [0, 255].
std::vector<std::size_t> closest_gpus(const std::vector<std::vector<int>>& distances);

// The CPUs of each task on the node, by local rank: those of Machine::task_cpus; else, under srun, what SLURM_CPU_BIND_TYPE
// and SLURM_CPU_BIND_LIST say, provided that they agree with this task's own CPUs, or this task's own CPUs for every task
// where Slurm binds none. Nothing where the others' cannot be told.
std::optional<std::vector<CpuSet>> cpus_of_tasks(const EnvMap& environment, const Layout& layout, const Machine& machine);

}  // namespace torchbridge
