#include "task_board.h"

#include <sys/mman.h>

#include <utility>

namespace torchbridge {

TaskBoard::TaskBoard(std::size_t tasks) {
  void* memory = mmap(nullptr, size_of(tasks), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;  // no reports then; the step itself does not need them
  board_ = static_cast<Shared*>(memory);  // zeroes are an empty board
  tasks_ = tasks;
}

TaskBoard::TaskBoard(TaskBoard&& other) noexcept
    : board_(std::exchange(other.board_, nullptr)), tasks_(std::exchange(other.tasks_, 0)) {}

TaskBoard& TaskBoard::operator=(TaskBoard&& other) noexcept {
  std::swap(board_, other.board_);
  std::swap(tasks_, other.tasks_);
  return *this;
}

TaskBoard::~TaskBoard() {
  if (board_ != nullptr) munmap(board_, size_of(tasks_));
}

}  // namespace torchbridge
