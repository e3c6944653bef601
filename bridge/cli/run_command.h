// The command torchbridge run: its options to the agent.
#pragma once

#include "bridge/agent/run_options.h"
#include "bridge/base/env_map.h"

namespace torchbridge {

// Returns the exit code.
int run_command(const RunOptions& options, const EnvMap& environment);

}  // namespace torchbridge
