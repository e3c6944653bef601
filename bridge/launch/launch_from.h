// The ways to a Launch. Used by resolve_launch.
#pragma once

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"
#include "bridge/bootstrap/exchange.h"
#include "bridge/core/launch_facts.h"
#include "bridge/core/torch_env.h"
#include "bridge/launch/launch_types.h"
#include "bridge/step/step_plan.h"

namespace torchbridge {

// From RANK and the related variables, as they are.
Result<Launch> launch_from_env(const EnvMap& environment);

// An error where RANK and WORLD_SIZE were exported outside the launcher and so hold for none of its ranks. Accepted
// are: the launcher's own rank; ours, in another numbering; and torchrun agents, one on each rank, whose workers count
// the agents as groups. A task of a resource manager may also run a torchrun of its own, independent of the others.
Status check_against_launcher(const TorchEnv& env, const EnvMap& environment);

// A launcher's facts, completed by an exchange where they need it.
Result<Launch> launch_from_launcher(LaunchFacts facts, const EnvMap& environment, const LaunchSettings& settings);

// The same through an existing exchange.
Result<Launch> launch_through_exchange(Exchange& exchange, LaunchFacts facts, const StepOptions& step,
                                       const EnvMap& environment, const LaunchSettings& settings);

// A world of one rank, with any free port; nothing is exchanged.
Result<Launch> launch_single_process(const LaunchSettings& settings);

}  // namespace torchbridge
