#include "bridge/launch/launcher_death.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>

#include "bridge/core/launcher.h"

namespace torchbridge {
namespace {

constexpr pid_t kInit = 1;

bool parent_is_a_launcher(const EnvMap& environment) {
  const Launcher* launcher = innermost_launcher(environment);
  const bool of_mpirun = launcher != nullptr && launcher->kind == Launcher::Kind::kMpi;
  // The SPANK plugin sets TORCHELASTIC_RUN_ID too, and Slurm ends its tasks itself.
  const bool under_slurm_step = environment.has("SLURM_STEP_ID") && !of_mpirun;
  return !under_slurm_step && (of_mpirun || environment.has("TORCHELASTIC_RUN_ID"));
}

}  // namespace

void end_with_launcher(const EnvMap& environment) {
  if (!parent_is_a_launcher(environment)) return;
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() == kInit) raise(SIGTERM);  // the parent died before prctl
}

}  // namespace torchbridge
