// Ends this process when the daemon that started it is killed.
#pragma once

#include "bridge/base/env_map.h"

namespace torchbridge {

// mpirun's and torchrun's processes run on when their launcher is killed by SIGKILL, which then cannot end them: two
// runs may come to share a checkpoint folder. Asks the kernel to send SIGTERM to this process at the death of its
// parent; does so only where `environment` says that the parent is such a launcher, and nothing for a process started
// by hand or by Slurm, which looks after its tasks itself. Call it at the start of main, from the main thread.
void end_with_launcher(const EnvMap& environment);

}  // namespace torchbridge
