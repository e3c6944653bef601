// The tasks of this program, for main.cpp.
#pragma once

#include <span>

#include <torchbridge/task.h>

std::span<const torchbridge::train::TaskRegistration> registered_tasks();
