// Everything to write a task: its interface, its options, errors, and parsing of text.
#pragma once

#include "bridge/base/env_map.h"
#include "bridge/base/nearest_name.h"
#include "trainer_template/runtime/base/errors.h"
#include "trainer_template/runtime/options/option_checks.h"
#include "trainer_template/runtime/options/option_table.h"
#include "trainer_template/runtime/tensors/linear.h"
#include "trainer_template/runtime/training/task.h"
