// Launches inside one another: what we set for the one around must not be taken for this one's.
#pragma once

#include <torchbridge/core/env_map.h>
#include <torchbridge/core/launcher.h>

namespace torchbridge {

// The environment without the variables that the plugin or torchbridge exec set for another launch than that of `facts`, which
// TORCHELASTIC_RUN_ID tells: srun inside a step of --torch-env, ranks of an mpirun whose daemons srun started. Unchanged where
// they are this launch's, torchrun's, or a user's.
EnvMap without_outer_run(const EnvMap& environment, const LaunchFacts& facts);

}  // namespace torchbridge
