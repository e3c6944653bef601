// torchrun's environment for one task, in the task's own process and with the user's rights.
#pragma once

#include "spank_plugin/shared_task_table.h"
#include "spank_plugin/spank.h"
#include "spank_plugin/stamp.h"

namespace torchbridge {

// What slurmstepd knows before it forks the tasks.
struct NodeState {
  Lists lists;
  SharedTaskTable table;
};

// Sets the variables, or ends the step. Does nothing where nobody asks for them.
void export_torch_env(spank_t spank, const NodeState& node);

}  // namespace torchbridge
