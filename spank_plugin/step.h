// What Slurm provides about the step that a hook is called for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bridge/base/env_map.h"
#include "spank_plugin/as_user.h"
#include "spank_plugin/spank.h"

namespace torchbridge {

// Nothing where Slurm does not provide the item in this hook.
template <class T>
std::optional<T> item(spank_t spank, spank_item_t what) {
  T value{};
  if (spank_get_item(spank, what, &value) != ESPANK_SUCCESS) return std::nullopt;
  return value;
}

struct StepIds {
  std::uint32_t job = 0;     // of this component: in a heterogeneous job each is a job of its own
  std::uint32_t leader = 0;  // of the first component
  std::uint32_t step = 0;
};
// Nothing where there is no step.
std::optional<StepIds> ids_of(spank_t spank);

// The environment of the tasks; in srun that of srun itself.
EnvMap job_environment(spank_t spank);

// The program's name and arguments; empty where Slurm does not provide them.
std::vector<std::string> program_of(spank_t spank);

// Whom the job belongs to. Nothing where Slurm does not provide it.
std::optional<UserIds> user_of(spank_t spank);

// The number on this node of the task that the hook is called for.
std::optional<std::size_t> local_task_of(spank_t spank);

// False for batch scripts, salloc's shell and the extern step.
bool is_normal_step(spank_t spank);
// False for batch scripts, salloc's shell, the extern step and MPI's daemons, whose tasks are not
// ranks. Reads the program's name: call it with the user's rights.
bool is_rank_step(spank_t spank);

}  // namespace torchbridge
