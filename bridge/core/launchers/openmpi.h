// OpenMPI 4 and 5: the variables of a process started by mpirun, mpiexec or prterun.
#pragma once

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"
#include "bridge/core/launch_facts.h"

namespace torchbridge {

bool detect_openmpi(const EnvMap& environment);
// Nodes are not known: where there is more than one, the ranks must exchange them.
Result<LaunchFacts> read_openmpi(const EnvMap& environment);

}  // namespace torchbridge
