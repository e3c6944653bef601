// The tasks of this program, which main.cpp asks for.
#pragma once

#include <torchbridge/task.h>

#include <span>

std::span<const torchbridge::train::TaskKind> task_kinds();
