// The command line of a worker.
#pragma once

#include <string>
#include <vector>

#include "bridge/base/env_map.h"
#include "bridge/run_values/run_options.h"

namespace torchbridge {

// What torchrun runs for these options, with `${local_rank}` in the arguments replaced and all else
// byte for byte. A program by name is run by Python (PYTHON_EXEC, else python or python3 of PATH)
// where it ends in .py, or is a file that is not executable, a folder with __main__.py, a zip, or a
// name without a folder that is no program of PATH but a script here; else it is run directly.
std::vector<std::string> worker_command(const RunOptions& options, const EnvMap& environment,
                                        int local_rank);

// Whether the first word of that command is Python.
bool is_run_by_python(const RunOptions& options, const EnvMap& environment);

// The text with the value in place of each `macro`, such as "${rank}".
std::string with_macro(std::string text, std::string_view macro, const std::string& value);

// The name for messages: "train.py" where Python runs it.
std::string program_name(const RunOptions& options);

}  // namespace torchbridge
