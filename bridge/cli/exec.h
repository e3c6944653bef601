// Replaces this process by another program.
#pragma once

#include <string>
#include <vector>

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"

namespace torchbridge {

// The program keeps pid, signals and descriptors of this process, and its exit code is the process's. It is looked up
// in PATH as a shell does. Returns only when it cannot be started, with a shell's exit codes: 127 where it does not
// exist, 126 where it may not be executed.
struct ExecFailure {
  int exit_code;
  Error error;
};
ExecFailure become(const std::vector<std::string>& program, const EnvMap& environment);

}  // namespace torchbridge
