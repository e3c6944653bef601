// Launches inside one another: what we set for the one around must not be taken for this one's.
#pragma once

#include <string_view>

#include "bridge/base/env_map.h"
#include "bridge/core/launch_facts.h"

namespace torchbridge {

// Set to our run id where the name of the error file is not ours and so does not tell it.
inline constexpr std::string_view kRunVariable = "TORCHBRIDGE_RUN_ID";

// Whether the plugin or torchbridge exec set variables in it, for this launch or one around it. They tell it
// themselves, so that no launcher need be read where there are none.
bool is_set_by_us(const EnvMap& environment);

// Whether they did for the launch of `facts`.
bool is_set_for(const EnvMap& environment, const LaunchFacts& facts);

// The environment without the variables that they set for another launch than that of `facts`, which
// TORCHELASTIC_RUN_ID tells: srun inside a step of --torch-env, ranks of an mpirun whose daemons srun started.
// Unchanged where they are this launch's, torchrun's, or a user's.
EnvMap without_outer_run(const EnvMap& environment, const LaunchFacts& facts);

}  // namespace torchbridge
