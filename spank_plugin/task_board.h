// Memory that slurmstepd shares with the tasks that it forks later, and with no program: it is gone with exec.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include <torchbridge/core/result.h>

namespace torchbridge {

// Written by a task with its user's rights before its program starts. Texts end with a zero byte.
struct TaskRecord {
  bool refused = false;  // no program was started, and srun does not know: slurmstepd is to end the step
  bool written = false;  // the rest is there
  int rank = 0;
  std::int64_t start_ms = 0;   // since the epoch
  std::int64_t oom_kills = 0;  // of this machine, at the start
  char error_file[3072] = "";  // absolute; empty where there is none
};

class TaskBoard {
 public:
  TaskBoard() = default;
  // In slurmstepd, before it forks the tasks. Empty where there is no memory. Pages that nobody touches are not used.
  explicit TaskBoard(std::size_t tasks);

  // Null for a task that the board has no room for.
  TaskRecord* record_of(std::size_t local_task) const;

  // Why the step must end: true for the first task of this node that asks, and for every task where there is no board.
  // The others wait until it has reported.
  bool may_report() const;
  void set_reported() const;
  // False where nobody of this node has reported within the time.
  bool wait_until_reported(std::chrono::milliseconds time) const;

  // The record of the step (bridge/core/step_record.h): the first task that comes calls `ask`, the others wait for what
  // it got. Where that takes longer than a minute, for the first may have died, and where there is no board, they ask
  // themselves.
  Result<std::string> ask_once(const std::function<Result<std::string>()>& ask) const;

 private:
  struct Shared;

  Shared* shared_ = nullptr;  // until slurmstepd ends
  std::size_t tasks_ = 0;
};

}  // namespace torchbridge
