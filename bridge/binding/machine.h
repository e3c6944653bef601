// The facts about the machine that a task runs on.
#pragma once

#include <vector>

#include "bridge/binding/topology.h"

namespace torchbridge {

// Read by bridge/host; an empty one is a machine of which nothing is known.
struct Machine {
  Topology topology;
  CpuSet cpus;  // that this task may run on; empty: not known
  // Of each task on this node, by local rank; empty: not known (slurm_task_cpus).
  std::vector<CpuSet> task_cpus;
};

}  // namespace torchbridge
