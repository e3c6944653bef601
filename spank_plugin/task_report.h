// How a failed task is told to the user: written down by the task, told by slurmstepd when the task has ended.
#pragma once

#include <sys/types.h>

#include <string>

#include <torchbridge/core/env_map.h>

#include "task_board.h"

namespace torchbridge {

// In the task, with its user's rights, when its environment is complete: `error_file` is its TORCHELASTIC_ERROR_FILE.
void write_record(TaskRecord& record, const EnvMap& environment, int rank, const std::string& error_file);

// In slurmstepd: reads the error file with the user's rights and tells srun, within three seconds. Returns what is to be told here
// because srun cannot be reached; empty where srun knows.
std::string tell_failure(const TaskRecord& record, uid_t user, gid_t group, int wait_status);

}  // namespace torchbridge
