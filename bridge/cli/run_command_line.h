// The command line of torchbridge run, which is torchrun's.
#pragma once

#include <string>
#include <vector>

#include "bridge/base/env_map.h"
#include "bridge/run_values/run_options.h"

namespace torchbridge {

// Whose command line it is: torch.distributed.launch passes --local-rank=N to the program, but with
// --use-env.
enum class RunStyle { kTorchrun, kTorchLaunch };

// `arguments` are those after the name of the command. As argparse reads them: options end at the
// first word without a dash, or after "--"; a unique prefix stands for an option; the last of
// repeated options counts. Variables of `environment` (PET_*) are defaults. Throws CommandLineEnd:
// help and other pages, or an error.
RunOptions parse_run_options(const std::vector<std::string>& arguments, const EnvMap& environment,
                             RunStyle style = RunStyle::kTorchrun);

}  // namespace torchbridge
