// The ways to a Launch. Used by resolve_launch.
#pragma once

#include "bridge/bootstrap/exchange.h"
#include "bridge/base/env_map.h"
#include "bridge/core/launch_facts.h"
#include "bridge/base/result.h"
#include "bridge/core/torch_env.h"
#include "bridge/launch/launch_types.h"
#include "bridge/step/step_plan.h"

namespace torchbridge {

// RANK and its companions at their word.
Result<Launch> launch_from_env(const EnvMap& environment);

// RANK and WORLD_SIZE that were exported around a launcher hold for none of its ranks. Right are: the launcher's own
// position; ours, in another numbering; and torchrun agents, one on each rank, whose workers count the agents as
// groups. A task of a resource manager may also run a torchrun of its own, apart from the others.
Status check_against_launcher(const TorchEnv& env, const EnvMap& environment);

// A launcher's facts, completed by an exchange where they need it.
Result<Launch> launch_from_launcher(LaunchFacts facts, const EnvMap& environment, const LaunchSettings& settings);

// The same through an exchange that is there already.
Result<Launch> launch_through_exchange(Exchange& exchange, LaunchFacts facts, const StepOptions& step,
                                       const EnvMap& environment, const LaunchSettings& settings);

// A world of one: any free port will do, and nobody has to be told.
Result<Launch> launch_alone(const LaunchSettings& settings);

}  // namespace torchbridge
