// The frame of a trainer's main(): launch, process group, error report, exit code.
#pragma once

#include <functional>
#include <type_traits>

#include "bridge/base/env_map.h"
#include "trainer_template/runtime/process_group/process_group.h"

namespace torchbridge::train {

// Calls `configure` (which may throw EarlyExit), finds out how this process was launched, forms the process group and
// calls `train`. An error is one line on stderr from one rank, "PROGRAM: rank R: message", which that rank also writes
// to TORCHELASTIC_ERROR_FILE, if it is set; so is a signal that ends the process (bridge/worker/record.h). Errors of
// `configure` and of a contradictory launch occur on every rank: rank 0 reports them. Returns the exit code of the
// process: that of `train` if there was no error. Of several ranks, one that is stopped after `train` for two seconds
// longer than the heartbeat's timeout is killed (kill_when_stopped.h), also while main() still runs; not with a timeout
// of 0.
int run_job(const EnvMap& environment, const std::function<GroupOptions()>& configure,
            const std::function<ExitCode(ProcessGroup&)>& train);

// For a `train` that returns nothing: kDone.
template <class Train>
requires std::is_void_v<std::invoke_result_t<Train&, ProcessGroup&>>
int run_job(const EnvMap& environment, const std::function<GroupOptions()>& configure, Train&& train) {
  return run_job(environment, configure, std::function<ExitCode(ProcessGroup&)>([&train](ProcessGroup& group) {
                   train(group);
                   return ExitCode::kDone;
                 }));
}

}  // namespace torchbridge::train
