// The exit code of srun after a failure that Slurm has not noticed.
#pragma once

namespace torchbridge {

// In srun, when its plugins end. If srun ends with 0 nevertheless, it ends with 1 instead: srun of Slurm 22.05 ends
// with 0 where the step is cancelled and no task's exit code arrives ("Timed out waiting for job step to complete").
void fail_if_srun_ends_with_zero();

}  // namespace torchbridge
