// Who set the variables of this process: those that torchbridge set for an outer launch must not be
// taken for this one's.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "bridge/base/env_map.h"
#include "bridge/core/launch_facts.h"
#include "bridge/core/torch_env.h"

namespace torchbridge {

// Who set RANK and the related variables.
enum class SetBy {
  kPlugin,
  kExec,
  kRun,
  kTorchrun,  // or who else sets TORCHELASTIC_RUN_ID
  kOthers,    // by hand, by a script, by another plugin of Slurm; or nobody
};

// The first three set it, to "exec slurm-7.0 slurm-7.0". By it alone a program knows that they set
// the variables, and for which launch.
inline constexpr char kSetByVariable[] = "TORCHBRIDGE_SET_BY";

// What the plugin and exec set beside it, but for CUDA_*: "RANK=0 WORLD_SIZE=2 ...". So what the
// user exported, or has changed since, is known as such.
inline constexpr char kSetVariable[] = "TORCHBRIDGE_SET";

struct Setter {
  SetBy who = SetBy::kOthers;
  // The setter's own: run_id_of() the facts that a launcher gives it, "none" without a launcher.
  // Empty where torchbridge did not set the variables.
  std::string launch{};
};
Setter setter_of(const EnvMap& environment);

// The value of kSetByVariable beside this TORCHELASTIC_RUN_ID, which is empty where it is not set.
// torchrun, which passes the variable on to its workers, sets another id.
std::string text_of(const Setter& setter, std::string_view run_id);

// Adds it, and kSetVariable, to the variables that will be set on top of `environment`.
void add_setter(const Setter& setter, const EnvMap& environment, std::vector<Variable>& variables);

// Whether the plugin or exec set one of these variables, and it has another value now: a script or
// another launcher inside the task sets it.
bool is_changed(const EnvMap& environment, std::initializer_list<const char*> names);

// Of a process for which a script inside the task sets RANK, WORLD_SIZE, MASTER_ADDR and
// MASTER_PORT: without what the plugin or exec set about ranks beside these, and is unchanged.
// LOCAL_RANK stays if `keeps_local_rank`.
EnvMap without_outer_ranks(const EnvMap& environment, bool keeps_local_rank);

// The environment without the variables that torchbridge set for another launch than that of
// `facts`: srun inside a step of --torch-env, ranks of an mpirun whose daemons srun started.
// Unchanged where the variables are this launch's, torchrun's, or a user's.
EnvMap without_outer_run(const EnvMap& environment, const LaunchFacts& facts);

// Of a process that no launcher has started, as a batch script: without the variables that
// launchers and torchbridge set for the process that submitted the job. Slurm passes them on.
EnvMap without_launch(const EnvMap& environment);

}  // namespace torchbridge
