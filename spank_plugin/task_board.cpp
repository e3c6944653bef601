#include "task_board.h"

#include <sys/mman.h>

#include <utility>

namespace torchbridge {

TaskBoard::TaskBoard(std::size_t tasks) {
  void* memory = mmap(nullptr, tasks * sizeof(TaskRecord), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;  // no reports then; the step itself does not need them
  records_ = static_cast<TaskRecord*>(memory);  // zeroes are an empty record
  tasks_ = tasks;
}

TaskBoard::TaskBoard(TaskBoard&& other) noexcept
    : records_(std::exchange(other.records_, nullptr)), tasks_(std::exchange(other.tasks_, 0)) {}

TaskBoard& TaskBoard::operator=(TaskBoard&& other) noexcept {
  std::swap(records_, other.records_);
  std::swap(tasks_, other.tasks_);
  return *this;
}

TaskBoard::~TaskBoard() {
  if (records_ != nullptr) munmap(records_, tasks_ * sizeof(TaskRecord));
}

}  // namespace torchbridge
