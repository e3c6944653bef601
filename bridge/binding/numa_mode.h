// Which CPUs a worker uses by torchrun's --numa-binding.
#pragma once

#include <string>
#include <vector>

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"
#include "bridge/binding/machine.h"

namespace torchbridge {

// Of the worker's GPU: the CPUs of its NUMA node; those of its socket; the worker's part of the
// node's cores; or the CPUs that share one cache of the node. kNone: all CPUs that the agent may
// use.
enum class NumaMode { kNone, kNode, kSocket, kExclusive, kCoreComplex };

// The GPUs of the workers of a node, by local rank: those that CUDA counts in a process with this
// environment, by CUDA_VISIBLE_DEVICES and PCI address. An error names one that the machine does
// not have.
Result<std::vector<const Gpu*>> gpus_of_workers(const EnvMap& environment,
                                                const Topology& topology);

// The CPUs of the worker whose GPU is gpus[local_rank], as torch/numa/binding.py selects them; of
// machine.cpus only. Never empty, but for kNone. A GPU without a NUMA node is on node 0. kSocket
// and kCoreComplex need sockets and caches of the topology. With kExclusive the node's cores are
// divided among all its `gpus`, whether a worker uses them or not; with kCoreComplex they take its
// caches in turn, those with the most CPUs first. An error names the mode, the GPU and what the
// machine lacks. Unlike torch's, kSocket leaves out nodes of which the agent may use no CPU.
Result<CpuSet> cpus_of_worker(NumaMode mode, const Machine& machine,
                              const std::vector<const Gpu*>& gpus, int local_rank);

}  // namespace torchbridge
