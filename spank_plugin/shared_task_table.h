// Memory that slurmstepd shares with the tasks that it forks later, until they become programs: exec unmaps it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "bridge/base/result.h"
#include "bridge/net/socket.h"

namespace torchbridge {

// Written by a task with its user's rights before its program starts. Texts end with a zero byte.
struct TaskRecord {
  bool written = false;  // set last: the other members are valid
  int rank = 0;
  std::int64_t start_ms = 0;   // since the epoch
  std::int64_t oom_kills = 0;  // of this machine, at the start
  char error_file[256] = "";   // name in the folder that the task passes through folders_in(); empty: no error file
};

class SharedTaskTable {
 public:
  SharedTaskTable() = default;
  // In slurmstepd, before it forks the tasks. Empty where there is no memory. The kernel allocates only pages in use.
  explicit SharedTaskTable(std::size_t tasks);

  // Null where the table has no record for the task.
  TaskRecord* record_of(std::size_t local_task) const;

  // Why the step must end. Keeps the reason of the first task of this node that sets one, truncated to 4 KiB. False
  // where the table is empty.
  bool set_reason(const char* reason) const;
  // Null where no task has set one.
  const char* reason() const;

  // kRecord: the record of the step (bridge/core/step_record.h). kAddress: the address of rank 0's node.
  enum Question { kRecord, kAddress, kQuestions };
  // The first task that calls this calls `ask`; the others wait for its result. They call `ask` themselves after a
  // minute, because the first task may have died, and where the table is empty.
  Result<std::string> ask_once(Question question, const std::function<Result<std::string>()>& ask) const;

  // The two ends of a channel. A task passes the folder of its error file through it, opened in the task's own mount
  // namespace and numbered by its rank (bridge/net/passed_descriptor.h). Not open where the table is empty.
  const Socket& folders_in() const { return folders_in_; }
  const Socket& folders_out() const { return folders_out_; }

 private:
  struct Shared;

  Shared* shared_ = nullptr;  // never unmapped: slurmstepd needs it until it ends
  std::size_t tasks_ = 0;
  Socket folders_in_, folders_out_;
};

}  // namespace torchbridge
