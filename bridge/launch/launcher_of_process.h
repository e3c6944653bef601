// Which launcher started this process, by its variables and its ancestors.
#pragma once

#include <cstdint>
#include <optional>

#include "bridge/base/env_map.h"
#include "bridge/core/launch_facts.h"

namespace torchbridge {

// The pid of the task of srun, where only scripts are between it and this process; else of this process. For
// find_launcher: variables do not distinguish an srun inside an mpirun's rank from the reverse, but between such a task
// and this process there is no mpirun.
std::int64_t slurm_task_or_self(const EnvMap& environment);

// Whether the innermost launcher is an mpirun, which ends all ranks when one has failed.
bool is_mpirun(const EnvMap& environment);

// The facts of the launcher itself, without RANK and the related variables; nothing where there is no launcher, or
// where its variables contradict each other.
std::optional<LaunchFacts> launcher_facts(const EnvMap& environment);

}  // namespace torchbridge
