// The ways to a Launch. Used by resolve_launch.
#pragma once

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"
#include "bridge/bootstrap/exchange.h"
#include "bridge/core/launch_facts.h"
#include "bridge/core/torch_env.h"
#include "bridge/launch/launch_origin.h"
#include "bridge/launch/launch_types.h"
#include "bridge/step/step_plan.h"

namespace torchbridge {

// From RANK and the related variables, as they are: LaunchOrigin::given, or given_by().
Result<Launch> launch_from_given(const Result<TorchEnv>& given, const LaunchOrigin& origin);

// Sets is_by_hand, is_local_size_known and may_have_other_nodes of a launch by RANK and the related
// variables, or by what a program gives.
void set_by_hand(Launch& launch, const LaunchOrigin& origin);

// A launcher's facts, completed by an exchange where they need it.
Result<Launch> launch_from_launcher(LaunchFacts facts, const EnvMap& environment,
                                    const LaunchSettings& settings);

// The same through an existing exchange.
Result<Launch> launch_through_exchange(Exchange& exchange, LaunchFacts facts,
                                       const StepOptions& step, const EnvMap& environment,
                                       const LaunchSettings& settings);

// A world of one rank, with any free port; nothing is exchanged. An error where a variable says
// that there are others.
Result<Launch> launch_single_process(const LaunchOrigin& origin, const LaunchSettings& settings);

}  // namespace torchbridge
