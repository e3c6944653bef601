#include "bridge/launch/launcher_death.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>

namespace torchbridge {
namespace {

constexpr pid_t kInit = 1;

bool parent_is_a_launcher(const LaunchOrigin& origin) {
  if (origin.is_of_mpirun()) return true;
  // Slurm ends its tasks itself.
  return origin.set_by != SetBy::kOthers && !origin.environment.has("SLURM_STEP_ID");
}

}  // namespace

void end_with_launcher(const LaunchOrigin& origin) {
  if (!parent_is_a_launcher(origin)) return;
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() == kInit) raise(SIGTERM);  // the parent died before prctl
}

}  // namespace torchbridge
