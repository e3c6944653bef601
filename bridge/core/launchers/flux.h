// Flux: the variables of a task of a job (flux-core, src/shell/task.c and
// doc/man7/flux-environment.rst).
#pragma once

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"
#include "bridge/core/launch_facts.h"

namespace torchbridge {

// True inside a task of a job; the initial program of an instance (flux start, flux batch) is none.
bool detect_flux(const EnvMap& environment);
// Where there is more than one node, neither the nodes nor the number of ranks on this one are
// known.
Result<LaunchFacts> read_flux(const EnvMap& environment);

}  // namespace torchbridge
