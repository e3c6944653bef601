// What the tasks of this node leave behind for slurmstepd, which learns of their end.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace torchbridge {

// Written by a task with its user's rights before its program starts. Texts end with a zero byte.
struct TaskRecord {
  bool written = false;
  int rank = 0;
  std::int64_t start_ms = 0;   // since the epoch
  std::int64_t oom_kills = 0;  // of this machine, at the start
  char error_file[3072] = "";  // absolute; empty where there is none
  char desk_host[64] = "";     // empty where srun has no desk
  int desk_port = 0;
  char desk_token[64] = "";
};

// Memory that slurmstepd shares with the tasks that it forks later, and with no program: it is gone with exec. Memory of
// slots that nobody touches is not used.
class TaskBoard {
 public:
  TaskBoard() = default;
  explicit TaskBoard(std::size_t tasks);
  TaskBoard(TaskBoard&& other) noexcept;
  TaskBoard& operator=(TaskBoard&& other) noexcept;
  ~TaskBoard();

  // Null for a task that the board has no room for.
  TaskRecord* record_of(std::size_t local_task) const { return local_task < tasks_ ? board_->records + local_task : nullptr; }

  // True for the first task of this node that asks, and for every task where there is no board.
  bool may_speak() const { return board_ == nullptr || !board_->spoken.exchange(true); }

 private:
  struct Shared {
    std::atomic<bool> spoken;
    TaskRecord records[];
  };
  static std::size_t size_of(std::size_t tasks) { return sizeof(Shared) + tasks * sizeof(TaskRecord); }

  Shared* board_ = nullptr;
  std::size_t tasks_ = 0;
};

}  // namespace torchbridge
