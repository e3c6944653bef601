// The tasks of this program, which main.cpp asks for.
#pragma once

#include <span>

#include <torchbridge/task.h>

std::span<const torchbridge::train::TaskRegistration> registered_tasks();
