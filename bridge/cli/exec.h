// Becoming another program.
#pragma once

#include <string>
#include <vector>

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"

namespace torchbridge {

// Replaces this process: same pid, signals, descriptors and exit code. The program is looked for in PATH as a shell
// does. Returns only when it cannot be started, with 127 where there is none and 126 where it may not be executed, as a
// shell.
struct ExecFailure {
  int exit_code;
  Error error;
};
ExecFailure become(const std::vector<std::string>& program, const EnvMap& environment);

}  // namespace torchbridge
