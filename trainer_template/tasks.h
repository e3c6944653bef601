// The tasks of this program, for main.cpp.
#pragma once

#include <span>

#include <torchbridge/task.h>

// The first is the default of --task.
std::span<const torchbridge::train::TaskRegistration> registered_tasks();
