// The frame of a trainer's main: launch, process group, one line of error from one rank, exit code.
#pragma once

#include <functional>

#include <torchbridge/core/env_map.h>
#include <torchbridge/train/group/process_group.h>

namespace torchbridge::train {

// Calls `configure` (which may throw EarlyExit), finds out how this process was launched, forms the process group and calls
// `train`. Errors end in one line on stderr, "trainer: rank R: message". What `configure` and a contradictory launch have to
// say, every rank would say: rank 0 alone does. Returns the exit code of the process.
int run_job(const EnvMap& environment, const std::function<GroupOptions()>& configure,
            const std::function<void(ProcessGroup&)>& train);

}  // namespace torchbridge::train
