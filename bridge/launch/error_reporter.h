// Which process of a job reports an error, so that it is said once and nobody ends the reporter
// before. For processes that end after it.
#pragma once

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"

namespace torchbridge {

// True where this process is to print the error: where it is only_here, the first of this node that
// has one; what every rank finds by itself, rank 0, or a process whose rank cannot be told. The
// others get false, under mpirun after some seconds: it ends all ranks when one has failed, also
// one that is about to report, so those that are silent stay there until they are ended. If they
// are not, rank 0 may be what is missing, and ranks 1 to 3 get true, two seconds apart.
bool reports(const Error& error, const EnvMap& environment);

}  // namespace torchbridge
