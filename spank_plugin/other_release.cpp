// Ends srun, sbatch and salloc where a variable requests the plugin, but Slurm is of another
// release than the headers that the plugin was built with. Slurm then rejects the plugin and
// continues without it: --torch-env is an unknown option, but a variable would have no effect, and
// the job would run without ranks.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include <slurm/slurm.h>

#include "bridge/core/launch_options.h"
#include "spank_plugin/spank.h"

// Resolved at run time from the Slurm process that opens the library, which links no libslurm.
extern "C" __attribute__((weak)) decltype(slurm_api_version) slurm_api_version;

namespace {

bool submits_jobs(std::string_view program) {
  return program == "srun" || program == "sbatch" || program == "salloc";
}

// The variable that requests the plugin; null where none does.
const char* requesting_variable() {
  // What sbatch and salloc make of --torch-env for the steps of their job; its value may be empty.
  constexpr const char* kInherited[] = {"SLURM_SPANK__SLURM_SPANK_OPTION_torch_env_torch_env",
                                        "_SLURM_SPANK_OPTION_torch_env_torch_env"};
  const char* list = getenv(torchbridge::kOptionsVariable);
  if (list != nullptr && *list != '\0') return torchbridge::kOptionsVariable;
  for (const char* name : kInherited) {
    if (getenv(name) != nullptr) return name;
  }
  return nullptr;
}

// Runs when the library is opened, because Slurm calls nothing in a plugin that it rejects. Each
// release has another major version of libslurm.
__attribute__((constructor)) void reject_other_release() {
  constexpr int kMajorShift = 16;
  if (slurm_api_version == nullptr || slurm_api_version() >> kMajorShift == TORCH_ENV_SLURM_API)
    return;
  const char* variable = requesting_variable();
  if (variable == nullptr || !submits_jobs(program_invocation_short_name)) return;
  dprintf(STDERR_FILENO,
          "%s: error: torch-env: %s is set, but torch_env.so in plugstack.conf was built for Slurm "
          "%u.%02u and %s is "
          "of another release: rebuild torch_env.so\n",
          program_invocation_short_name, variable, SLURM_VERSION_MAJOR(SLURM_VERSION_NUMBER),
          SLURM_VERSION_MINOR(SLURM_VERSION_NUMBER), program_invocation_short_name);
  _exit(EXIT_FAILURE);
}

}  // namespace
