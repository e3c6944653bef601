// Environments recorded from real launchers: tests/data/environments/CASE/rankN.env.
#pragma once

#include <string>

#include "bridge/base/env_map.h"

namespace torchbridge {

// Fails the running test when there is no such recording.
EnvMap recorded_environment(const std::string& test_case, int rank);

}  // namespace torchbridge
