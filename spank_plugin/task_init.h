// torchrun's environment for one task, in the task's own process and with the user's rights.
#pragma once

#include <torchbridge/core/env_map.h>
#include <torchbridge/core/result.h>

#include "settings.h"
#include "shared_placement.h"
#include "spank.h"
#include "task_board.h"

namespace torchbridge {

// What slurmstepd knows before it forks the tasks.
struct NodeState {
  Settings settings;
  TaskBoard board;
  SharedPlacement placement;
};

EnvMap job_environment(spank_t spank);

// Batch scripts, salloc's shell, the extern step and MPI's daemons are no ranks of anything. Reads the program's name: call it
// with the user's rights.
bool is_rank_step(spank_t spank);

// Sets the variables, or says why not and ends the task. Does nothing where nobody asks for them.
void export_torch_env(spank_t spank, const NodeState& node);

}  // namespace torchbridge
