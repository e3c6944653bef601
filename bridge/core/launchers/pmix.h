// A launcher of which nothing is known but that it has a PMIx server, such as prun without OpenMPI's personality.
#pragma once

#include <torchbridge/core/launcher.h>

namespace torchbridge {

bool detect_pmix(const EnvMap& environment);
// Always an error: the variables tell a rank, but not of how many.
Result<LaunchFacts> read_pmix(const EnvMap& environment);

}  // namespace torchbridge
