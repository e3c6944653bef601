// The command line of a worker.
#pragma once

#include <string>
#include <vector>

#include "bridge/base/env_map.h"
#include "bridge/run_values/run_options.h"

namespace torchbridge {

// What torchrun runs for these options, with `${local_rank}` in the arguments replaced and all else byte for byte. A
// program by name is a script of Python (PYTHON_EXEC, else python or python3 of PATH) where it ends in .py, or is a
// file that is not executable; else it is run directly.
std::vector<std::string> worker_command(const RunOptions& options, const EnvMap& environment, int local_rank);

// The name for messages: "train.py" where Python runs it.
std::string program_name(const RunOptions& options);

}  // namespace torchbridge
