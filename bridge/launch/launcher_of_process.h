// Which launcher started this process, as far as its variables and its ancestors tell.
#pragma once

#include <cstdint>
#include <optional>

#include "bridge/base/env_map.h"
#include "bridge/core/launch_facts.h"

namespace torchbridge {

// The task of srun that led to this process by scripts alone; else this process. For find_launcher: variables do not
// tell an srun inside an mpirun's rank from the reverse, but between such a task and us there is no mpirun.
std::int64_t task_or_self(const EnvMap& environment);

// Whether the innermost launcher is an mpirun, which ends all ranks when one has failed.
bool is_mpirun(const EnvMap& environment);

// What the launcher itself says, apart from RANK and its companions; nothing where there is none, or where it is at
// odds with itself.
std::optional<LaunchFacts> launcher_facts(const EnvMap& environment);

}  // namespace torchbridge
