// Memory that slurmstepd shares with the tasks that it forks later, and with no program: it is gone with exec.
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
  bool written = false;  // the rest is there
  int rank = 0;
  std::int64_t start_ms = 0;   // since the epoch
  std::int64_t oom_kills = 0;  // of this machine, at the start
  char error_file[256] = "";   // its name in the folder that came through the table's channel; empty: there is none
};

class SharedTaskTable {
 public:
  SharedTaskTable() = default;
  // In slurmstepd, before it forks the tasks. Empty where there is no memory. Pages that nobody touches are not used.
  explicit SharedTaskTable(std::size_t tasks);

  // Null for a task that the table has no room for.
  TaskRecord* record_of(std::size_t local_task) const;

  // Why the step must end. Of the tasks of this node the first one's is kept, 4 KiB of it. False where there is no
  // table.
  bool set_reason(const char* reason) const;
  // Null where there is none.
  const char* reason() const;

  // kRecord is that of the step (bridge/core/step_record.h), kAddress that of rank 0's node.
  enum Question { kRecord, kAddress, kQuestions };
  // The first task that comes calls `ask`, the others wait for what it got. Where that takes longer than a minute, for
  // the first may have died, and where there is no table, they ask themselves.
  Result<std::string> ask_once(Question question, const std::function<Result<std::string>()>& ask) const;

  // Through which a task passes the folder of its error file, opened in its own mount namespace, numbered by its rank
  // (bridge/net/passed_descriptor.h). Not open where there is no table.
  const Socket& folders_in() const { return folders_in_; }
  const Socket& folders_out() const { return folders_out_; }

 private:
  struct Shared;

  Shared* shared_ = nullptr;  // until slurmstepd ends
  std::size_t tasks_ = 0;
  Socket folders_in_, folders_out_;
};

}  // namespace torchbridge
