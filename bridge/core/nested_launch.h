// Nested launches: the variables that torchbridge set for an outer launch must not be taken for this one's.
#pragma once

#include <string_view>

#include "bridge/base/env_map.h"
#include "bridge/core/launch_facts.h"

namespace torchbridge {

// Contains the run id where the error file is not ours, so that its name does not contain it.
inline constexpr std::string_view kRunVariable = "TORCHBRIDGE_RUN_ID";

// Whether the plugin or torchbridge exec set variables in it, for this launch or an outer one. Seen from those
// variables alone, so that no launcher need be read where there are none.
bool is_set_by_us(const EnvMap& environment);

// Whether they were set for the launch of `facts`.
bool is_set_for(const EnvMap& environment, const LaunchFacts& facts);

// The environment without the variables that were set for another launch than that of `facts`, by TORCHELASTIC_RUN_ID:
// srun inside a step of --torch-env, ranks of an mpirun whose daemons srun started. Unchanged where the variables are
// this launch's, torchrun's, or a user's.
EnvMap without_outer_run(const EnvMap& environment, const LaunchFacts& facts);

}  // namespace torchbridge
