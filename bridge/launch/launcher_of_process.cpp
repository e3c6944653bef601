#include "bridge/launch/launcher_of_process.h"

#include <unistd.h>

#include <utility>

#include "bridge/core/launcher.h"
#include "bridge/host/process_tree.h"

namespace torchbridge {

std::int64_t slurm_task_or_self(const EnvMap& environment) {
  const auto task = environment.integer("SLURM_TASK_PID", 1, INT32_MAX);
  if (!task || !*task) return getpid();
  for (const auto& process : this_and_ancestors()) {
    if (starts_ranks(process.name)) break;  // also where it is the task itself
    if (process.id == **task) return process.id;
  }
  return getpid();
}

bool is_mpirun(const EnvMap& environment) {
  const Launcher* launcher = innermost_launcher(environment, slurm_task_or_self(environment));
  return launcher != nullptr && launcher->kind == Launcher::Kind::kMpi;
}

std::optional<LaunchFacts> launcher_facts(const EnvMap& environment) {
  const auto launcher = find_launcher(environment, slurm_task_or_self(environment));
  if (!launcher || *launcher == nullptr) return std::nullopt;
  auto facts = (*launcher)->read(environment);
  return facts ? std::optional(std::move(*facts)) : std::nullopt;
}

}  // namespace torchbridge
