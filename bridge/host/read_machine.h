// Reads GPUs, NUMA nodes and cores of a machine from sysfs and the driver's files.
#pragma once

#include <string>

#include "bridge/base/result.h"
#include "bridge/binding/machine.h"
#include "bridge/binding/topology.h"

namespace torchbridge {

// NVIDIA's GPUs, NUMA nodes and cores below `root`, which is "" for this machine and ends without a
// slash: root/sys, root/proc and root/dev. No NVML, no CUDA context, nothing is opened for writing.
// Where a folder is missing, so are its facts; a GPU is unusable where the driver's list lacks it,
// or where this process may not open its
// device file (a device cgroup counts). An error names the file.
Result<Topology> read_topology(const std::string& root);

// The CPUs that the calling thread may run on.
Result<CpuSet> allowed_cpus();

// Both together: the input of binding_of for the machine that it is called on.
Result<Machine> read_machine(const std::string& root = "");

}  // namespace torchbridge
