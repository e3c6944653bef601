// Sets torchrun's environment for one task, in the task's own process and with the user's rights.
#pragma once

#include <chrono>

#include "spank_plugin/shared_task_table.h"
#include "spank_plugin/spank.h"
#include "spank_plugin/step_abort.h"
#include "spank_plugin/step_request.h"

namespace torchbridge {

// What slurmstepd has before it forks the tasks, which inherit it.
struct NodeState {
  OptionLists lists;
  SharedTaskTable table;
  // What is left of the time in which slurmstepd, when its tasks have ended, does something for
  // their user.
  std::chrono::milliseconds time_at_end = kAbortLimit;
};

// Sets the variables, or ends the step. Does nothing where the plugin is not requested.
void export_torch_env(spank_t spank, const NodeState& node);

}  // namespace torchbridge
