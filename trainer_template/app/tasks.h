// The tasks of this program. To add one, write a file like digits.cpp and add a line to tasks.cpp.
#pragma once

#include <span>

#include <torchbridge/task.h>

torchbridge::train::TaskRegistration digits_task();
torchbridge::train::TaskRegistration text_task();
torchbridge::train::TaskRegistration table_task();

// The table; the first is the default of --task.
std::span<const torchbridge::train::TaskRegistration> registered_tasks();
