// How a failed task is told to the user: written down by the task, told by slurmstepd when the task has ended.
#pragma once

#include <string>

#include "spank_plugin/failure_listener.h"
#include "spank_plugin/shared_task_table.h"

namespace torchbridge {

// In the task, with its user's rights, when its environment is complete: `error_file` is its TORCHELASTIC_ERROR_FILE.
// Passes the file's folder on, for slurmstepd may see another one by that path, outside the task's container.
void write_record(const SharedTaskTable& table, TaskRecord& record, int rank, const std::string& error_file);

// With the user's rights, for the first task of a node that fails: reads the error file and tells srun. Returns what is
// to be told here because srun cannot be reached; empty where srun knows. A task that ended by SIGTERM or SIGKILL, for
// which memory did not run out, is not said to have failed, and not told of here: that is how Slurm ends tasks.
std::string tell_failure(const SharedTaskTable& table, const TaskRecord& record, const FailureListenerAddress& reporter,
                         int wait_status);

}  // namespace torchbridge
