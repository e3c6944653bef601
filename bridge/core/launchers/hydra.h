// Hydra, the mpiexec of MPICH and Intel MPI; also others that start processes by the PMI-1
// protocol.
#pragma once

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"
#include "bridge/core/launch_facts.h"

namespace torchbridge {

bool detect_hydra(const EnvMap& environment);
// Nodes are not known: where there is more than one, the ranks must exchange them.
Result<LaunchFacts> read_hydra(const EnvMap& environment);

// A launcher of which nothing is known but that it offers PMI-1: rank and size, and a descriptor to
// exchange the rest.
bool detect_pmi(const EnvMap& environment);
Result<LaunchFacts> read_pmi(const EnvMap& environment);

}  // namespace torchbridge
