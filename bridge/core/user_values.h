// What the user exported against what was computed: which variables are really set.
#pragma once

#include <vector>

#include <torchbridge/core/env_map.h>
#include <torchbridge/core/result.h>
#include <torchbridge/core/torch_env.h>

namespace torchbridge {

// The variables of `computed` that are to be set on top of `user`: all of them with `override_user`, else those that the
// user has not exported. A rank or a size that the user exported and that is not this task's (RANK='0' for every task, from
// a script or an outer launcher) would be wrong in any program: an error that shows both.
Result<std::vector<Variable>> variables_to_set(const std::vector<Variable>& computed, const EnvMap& user, bool override_user);

}  // namespace torchbridge
