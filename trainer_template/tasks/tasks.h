// The tasks of the trainer. To add one, write a file like digits.cpp and add a line to tasks.cpp.
#pragma once

#include "trainer_template/tasks.h"

torchbridge::train::TaskRegistration digits_task();
torchbridge::train::TaskRegistration text_task();
torchbridge::train::TaskRegistration table_task();
