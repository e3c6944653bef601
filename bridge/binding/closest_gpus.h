// Assigns each task of a node the GPU nearest to its CPUs, and finds the CPUs of the tasks.
#pragma once

#include <cstddef>
#include <vector>

#include "bridge/base/env_map.h"
#include "bridge/binding/cpu_set.h"
#include "bridge/core/layout.h"

namespace torchbridge {

// distances[task][gpu] -> the GPU of each task: no GPU twice, the sum of distances as small as can
// be; among such assignments one with the lowest GPUs, and the lower GPU for the lower task. Every
// task that calls it with the same table gets the same answer. REQUIRES: at most as many tasks as
// GPUs, at most kMaxGpus, rows of equal length, distances in [0, 255].
std::vector<std::size_t> closest_gpus(const std::vector<std::vector<int>>& distances);

// The CPUs of each task on the node, by local rank, for Machine::task_cpus: from
// SLURM_CPU_BIND_TYPE and SLURM_CPU_BIND_LIST, provided that they agree with this task's `own`, or
// `own` for every task where Slurm binds none. Empty where those of the other tasks are not known.
// Only for tasks that srun itself started: an mpirun inside a step inherits these variables, and
// binds by rules of its own.
std::vector<CpuSet> slurm_task_cpus(const EnvMap& environment, const Layout& layout,
                                    const CpuSet& own);

}  // namespace torchbridge
