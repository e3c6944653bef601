// Which of the computed variables are set, and which exported ones are kept.
#pragma once

#include <string_view>
#include <vector>

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"
#include "bridge/core/torch_env.h"

namespace torchbridge {

// RANK, LOCAL_WORLD_SIZE and their like.
bool is_rank_or_size(std::string_view name);

// The variables of `computed` that are to be set on top of `user`: all of them with
// `override_user`, else those that the user has not exported. An exported rank or size that differs
// from the computed one is an error. A rank that was exported for all tasks is right for one of
// them, which has no error where the others do. Other plugins of Slurm set each task's own (pyxis
// RANK and LOCAL_RANK). For an agent, which gives its workers others, it is replaced.
Result<std::vector<Variable>> variables_to_set(const std::vector<Variable>& computed,
                                               const EnvMap& user, bool override_user,
                                               bool is_for_agent);

}  // namespace torchbridge
