// What the tasks of this node leave behind for slurmstepd, which learns of their end.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shared_memory.h"

namespace torchbridge {

// Written by a task with its user's rights before its program starts. Texts end with a zero byte.
struct TaskRecord {
  bool refused = false;  // no program was started: the step is to end
  bool written = false;  // the rest is there
  int rank = 0;
  std::int64_t start_ms = 0;   // since the epoch
  std::int64_t oom_kills = 0;  // of this machine, at the start
  char error_file[3072] = "";  // absolute; empty where there is none
  char desk_host[64] = "";     // empty where srun has no desk
  int desk_port = 0;
  char desk_token[64] = "";
};

class TaskBoard {
 public:
  TaskBoard() = default;
  // In slurmstepd, before it forks the tasks. Empty where there is no memory.
  explicit TaskBoard(std::size_t tasks);

  // Null for a task that the board has no room for.
  TaskRecord* record_of(std::size_t local_task) const { return shared() && local_task < tasks_ ? shared()->records + local_task : nullptr; }

  // True for the first task of this node that asks, and for every task where there is no board.
  bool may_speak() const { return !shared() || !shared()->spoken.exchange(true); }

 private:
  struct Shared {
    std::atomic<bool> spoken;
    TaskRecord records[];
  };
  Shared* shared() const { return static_cast<Shared*>(memory_.data()); }

  SharedMemory memory_;
  std::size_t tasks_ = 0;
};

}  // namespace torchbridge
