// Reports a failed task to the user: the task leaves a record, and slurmstepd reports from it when
// the task has ended, or a process beside the tasks while it is stopped.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "spank_plugin/failure_listener.h"
#include "spank_plugin/shared_task_table.h"

namespace torchbridge {

struct ReportedTask {
  int rank = 0;
  std::string error_file;     // its TORCHELASTIC_ERROR_FILE
  bool file_is_ours = false;  // and not one that the user chose
};

// In the task, with its user's rights, when its environment is complete. Passes the error file's
// open folder to slurmstepd, for which the path may lead to another folder, outside the task's
// container.
void write_record(const SharedTaskTable& table, std::size_t local_task, const ReportedTask& task);

// A task that ends, or is stopped, so soon after its start leaves others behind that have done
// little work yet. Tests build a plugin with less.
#ifndef TORCH_ENV_STARTING_SECONDS
#define TORCH_ENV_STARTING_SECONDS 60
#endif
inline constexpr std::chrono::seconds kStarting{TORCH_ENV_STARTING_SECONDS};

// Whether the task ended by a signal that Slurm and users send so that tasks save and end: scancel,
// a time limit, preemption, --signal.
bool is_asked_to_end(int wait_status);

struct FailureReport {
  std::string text;       // to log on the node, where srun cannot be reached
  bool is_cause = false;  // of the tasks of this node it was the first to write an error file
};
// In a child of slurmstepd, with the user's rights, for the first task of a node that fails
// (`is_first`), and for the first that is asked to end; for others that fail it does nothing unless
// they are the cause. Reads the error files and reports to srun; the time of the failure is that at
// which the task wrote its file, if it did. A task that ended by SIGTERM, SIGINT or SIGKILL,
// without running out of memory, is reported as the first to end instead of the first to fail, and
// never logged on the node: Slurm ends tasks by these signals. The report is a kTaskEnded where
// is_asked_to_end() holds after kStarting, because others may be saving, and of an agent
// (bridge/core/agent_command.h); else a kTaskFailed. `program`: its name and arguments.
FailureReport report_failure(const SharedTaskTable& table, const TaskRecord& record,
                             const FailureListenerAddress& listener, int wait_status,
                             const std::vector<std::string>& program, bool is_first = true);

// In a task, before its program starts. Leaves a process behind, no child of the program's, that
// looks twice a second at the tasks of this node, by their records, and at all processes below
// them, and reports the first one that a signal has stopped for `limit` as a kTaskHangs. It ends
// with the tasks, with its report, or kStarting after the start unless a task is stopped then. As a
// part of the step it is stopped itself, and counts no time, while Slurm has suspended the job.
void watch_stopped_tasks(const SharedTaskTable& table, const FailureListenerAddress& listener,
                         std::chrono::milliseconds limit);

// In a child of slurmstepd, with the user's rights, when all tasks of the node have ended: removes
// their error files, but for those that the user chose.
void remove_error_files(const SharedTaskTable& table);

}  // namespace torchbridge
