// Memory that slurmstepd shares with the tasks that it forks later, until they become programs:
// exec unmaps it.
//
// The tasks have the user's rights, and slurmstepd is root: for it, each byte of the table is input
// of another user. Every text is read once and within its bounds, every number is checked, and root
// itself reads only flags.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "bridge/base/result.h"
#include "bridge/net/socket.h"

namespace torchbridge {

// What a task writes with its user's rights before its program starts.
struct TaskRecord {
  int rank = 0;
  int process = 0;  // as the task itself counts processes
  std::chrono::system_clock::time_point start;
  std::int64_t oom_kills = 0;  // of this machine, at the start
  std::string error_file;  // name in the folder that the task passes through folders_in(); empty:
                           // no error file
  bool removes_file = false;  // the plugin chose the name, so the file ends with the step
};

class SharedTaskTable {
 public:
  SharedTaskTable() = default;
  // In slurmstepd, before it forks the tasks. Empty where there is no memory. The kernel allocates
  // only pages in use.
  explicit SharedTaskTable(std::size_t tasks);

  bool is_empty() const { return shared_ == nullptr; }

  // A longer name of the error file is left out: truncated it would be the name of another file.
  void write_record(std::size_t local_task, const TaskRecord& record) const;
  bool has_record(std::size_t local_task) const;
  // Nothing where the task has written none, or one that no task of the plugin writes.
  std::optional<TaskRecord> record_of(std::size_t local_task) const;

  // Why the step must end. Keeps the reason of the first task of this node that sets one, truncated
  // to 4 KiB. False where the table is empty.
  bool set_reason(const char* reason) const;
  bool has_reason() const;
  std::string reason() const;  // empty where no task has set one

  // What is found once for all tasks of the node, before they run. kRecord: the record of the step
  // (bridge/core/step_record.h). kNames: the names that the tasks need (HostNames::text()).
  enum Answer { kRecord, kNames, kAnswers };
  // From one process. A later answer replaces the one before. Does nothing where the table is
  // empty.
  void set_answer(Answer which, const Result<std::string>& answer) const;
  // Nothing where none was set.
  std::optional<Result<std::string>> answer(Answer which) const;

  // The two ends of a channel. A task passes the folder of its error file through it, opened in the
  // task's own mount namespace and numbered by its rank (bridge/net/passed_descriptor.h). Not open
  // where the table is empty.
  const Socket& folders_in() const { return folders_in_; }
  const Socket& folders_out() const { return folders_out_; }
  std::size_t tasks() const { return tasks_; }

 private:
  struct Shared;

  Shared* shared_ = nullptr;  // never unmapped: slurmstepd needs it until it ends
  std::size_t tasks_ = 0;
  Socket folders_in_, folders_out_;
};

}  // namespace torchbridge
