// Ends this process when the daemon that started it is killed.
#pragma once

#include "bridge/launch/launch_origin.h"

namespace torchbridge {

// mpirun's and torchrun's processes continue when their launcher is killed by SIGKILL, which then
// cannot end them: two runs may use one checkpoint folder. Has the kernel send SIGTERM to this
// process when its parent dies. Only where the parent is such a launcher; does
// nothing for a process started by hand or by Slurm, which ends its tasks itself. Call it at the
// start of main, from the main thread.
void end_with_launcher(const LaunchOrigin& origin);

}  // namespace torchbridge
