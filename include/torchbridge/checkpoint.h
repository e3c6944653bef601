// Checkpoints, and resuming from a file of Python's.
#pragma once

#include "trainer_template/runtime/base/train_state.h"
#include "trainer_template/runtime/checkpoint/checkpoint.h"
#include "trainer_template/runtime/checkpoint/load.h"
#include "trainer_template/runtime/checkpoint/resume_from_python.h"
