// Puts the calling process onto CPUs and next to memory.
#pragma once

#include "bridge/binding/cpu_set.h"
#include "bridge/base/result.h"

namespace torchbridge {

// Confines the calling thread, and all that it starts, to the CPUs, and has it take memory from the NUMA node while
// that has some, and from others afterwards: a full node must not end a job that has memory elsewhere. An empty set
// leaves the CPUs, and node -1 the memory, as they are. A kernel without NUMA, a node without memory, or a container
// that forbids the call is no error: memory then comes from where the CPUs are. Both outlast exec. Call it before the
// process has threads.
Status place(const CpuSet& cpus, int memory_node);

}  // namespace torchbridge
