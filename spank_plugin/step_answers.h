// What the tasks of a node need of the resolver and of Slurm's controller, asked once before any of
// them runs.
//
// A task may enter a container before it reaches our task_init: pyxis does so there, and in older
// releases in task_init_privileged. Inside it, the resolver, which libslurm's requests call too,
// would load libraries of the image into a process that is a copy of slurmstepd. So nothing is
// asked there; here slurmstepd is on the node's own files.
#pragma once

#include "spank_plugin/spank.h"
#include "spank_plugin/task_init.h"

namespace torchbridge {

// In slurmstepd, after it has forked the task that the hook is called for and before any task of
// the node goes on. For the first of them a child with the user's rights asks, for at most ten
// seconds, and leaves the answers in the table: the placement of the ranks where the variables do
// not contain it, and the names of names_of_step, with the NodeAddr of rank 0's node where its name
// does not resolve. Errors are left to the tasks that need the answer.
void ask_for_tasks(spank_t spank, const NodeState& node);

}  // namespace torchbridge
