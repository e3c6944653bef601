// How a task ends the step when its program cannot have a complete environment.
//
// An error returned to Slurm from an `optional` plugin would start the program without it, so the task ends itself; and one rank
// without its environment would leave the others waiting, so it ends the step.
#pragma once

#include <string>

#include <torchbridge/core/env_map.h>
#include <torchbridge/core/result.h>

#include "spank.h"
#include "task_board.h"

namespace torchbridge {

// A line on the task's own stderr.
void tell_task(const std::string& message);

// From here on Slurm can end this process.
void let_slurm_end_us();

// Asks Slurm to kill all tasks of the step.
void end_step(spank_t spank);

// Where every task finds the same error: the launcher's rank 0 tells it; a task that cannot say which it is speaks too.
[[noreturn]] void end_all_tasks(const EnvMap& environment, const Error& error);

// Where only this task, or those of this node, may have found it: the first of them that knows tells it, unless another node
// does, as an empty message means, and ends the step.
[[noreturn]] void end_task(spank_t spank, const TaskBoard& board, const Error& error);

// Where this node is at fault, or all nodes alike: then the first of them speaks.
[[noreturn]] void end_task_of_wrong_node(spank_t spank, const TaskBoard& board, const EnvMap& environment, const Error& error);

}  // namespace torchbridge
