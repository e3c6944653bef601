// Which process of a job prints an error, so that it is printed once and before the launcher ends
// the reporter. For processes that exit after the error.
#pragma once

#include "bridge/base/result.h"
#include "bridge/launch/launch_origin.h"

namespace torchbridge {

// True where this process prints the error. Of an error that is only_here that is the first process
// of the node that asks; of an error that every rank finds, rank 0, or a process whose rank is not
// known. The others get false. Under mpirun they get it after some seconds: mpirun ends all ranks
// when one has failed, also the reporter before it has printed, so the others wait until they are
// ended. If they are not, rank 0 may be missing, and ranks 1 to 3 get true, five seconds apart.
bool should_report(const Error& error, const LaunchOrigin& origin);

}  // namespace torchbridge
