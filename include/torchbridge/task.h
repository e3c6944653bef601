// What a task of a trainer is written with: its interface, options of its own, errors, and the reading of text.
#pragma once

#include "bridge/base/env_map.h"
#include "bridge/base/nearest_name.h"
#include "trainer_template/runtime/base/errors.h"
#include "trainer_template/runtime/tensors/linear.h"
#include "trainer_template/runtime/options/option_checks.h"
#include "trainer_template/runtime/options/option_table.h"
#include "trainer_template/runtime/training/task.h"
