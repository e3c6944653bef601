// The tasks of this program. One of your own is a file like digits.cpp and a line in tasks.cpp.
#pragma once

#include <span>

#include <torchbridge/task.h>

torchbridge::train::TaskKind digits_task();
torchbridge::train::TaskKind text_task();
torchbridge::train::TaskKind table_task();

// The table; the first is the default of --task.
std::span<const torchbridge::train::TaskKind> task_kinds();
