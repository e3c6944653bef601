// Binds the calling process to CPUs and to the memory of a NUMA node.
#pragma once

#include "bridge/base/result.h"
#include "bridge/binding/cpu_set.h"

namespace torchbridge {

// Binds the calling thread, and all threads and processes that it starts, to the CPUs, and prefers
// memory of the NUMA node; when that is full the kernel takes memory of other nodes, and the job
// continues. An empty set leaves the CPUs unchanged, and node -1 the memory. A kernel without NUMA,
// a node without memory, or a container
// that forbids the call is no error: memory then is allocated near the CPUs. Both settings persist
// over exec. Call it before the process has threads.
Status set_affinity(const CpuSet& cpus, int memory_node);

}  // namespace torchbridge
