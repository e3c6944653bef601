// Inside this folder: what the ways to a Launch have in common.
#pragma once

#include <torchbridge/exchange/launch.h>

namespace torchbridge {

// The task of srun that led to this process by scripts alone; else this process. For find_launcher: variables do not tell an srun
// inside an mpirun's rank from the reverse, but between such a task and us there is no mpirun.
std::int64_t task_or_self(const EnvMap& environment);

// Whether the innermost launcher is an mpirun, which ends all ranks when one has failed.
bool is_mpirun(const EnvMap& environment);

// RANK and its companions at their word.
Result<Launch> launch_by_word(const EnvMap& environment);

// A launcher's facts, completed by an exchange where they need it.
Result<Launch> launch_by_launcher(LaunchFacts facts, const EnvMap& environment, const LaunchSettings& settings);

// The same through an exchange that is there already.
Result<Launch> launch_through(Exchange& exchange, LaunchFacts facts, const StepOptions& step, const EnvMap& environment,
                              const LaunchSettings& settings);

}  // namespace torchbridge
