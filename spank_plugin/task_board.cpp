#include "task_board.h"

namespace torchbridge {

TaskBoard::TaskBoard(std::size_t tasks) : memory_(sizeof(Shared) + tasks * sizeof(TaskRecord)), tasks_(tasks) {}

}  // namespace torchbridge
