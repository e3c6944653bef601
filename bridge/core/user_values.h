// What the user exported against what was computed: which variables are really set.
#pragma once

#include <vector>

#include <torchbridge/core/env_map.h>
#include <torchbridge/core/result.h>
#include <torchbridge/core/torch_env.h>

namespace torchbridge {

// The variables of `computed` that are to be set on top of `user`: all of them with `override_user`, else those that the
// user has not exported. An exported rank reaches every task with one value, and so is wrong for all but one; an exported
// size may be right. Where they are wrong the answer is an error, the same one on every task of the job.
Result<std::vector<Variable>> variables_to_set(const std::vector<Variable>& computed, const EnvMap& user, bool override_user);

}  // namespace torchbridge
