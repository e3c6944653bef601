// A launcher of which nothing is known but that it has a PMIx server, such as prun without
// OpenMPI's personality.
#pragma once

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"
#include "bridge/core/launch_facts.h"

namespace torchbridge {

bool detect_pmix(const EnvMap& environment);
// "NAMESPACE.RANK;tcp4://ADDRESS:PORT" of the daemon that serves this process: of the variables
// PMIX_SERVER_URI*, the newest that begins with `beginning`; empty where there is none. PMIx 4 sets
// URI2 to URI41, PMIx 7 URI21 to URI61 and no URI2.
std::string_view pmix_server_uri(const EnvMap& environment, std::string_view beginning = {});
// Always an error: the variables contain a rank, but not the number of ranks.
Result<LaunchFacts> read_pmix(const EnvMap& environment);

}  // namespace torchbridge
