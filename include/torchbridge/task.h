// What a task of a trainer is written with: its interface, options of its own, errors, and the reading of text.
#pragma once

#include "bridge/core/env_map.h"
#include "bridge/core/nearest_name.h"
#include "trainer_template/runtime/errors.h"
#include "trainer_template/runtime/linear.h"
#include "trainer_template/runtime/run/option_checks.h"
#include "trainer_template/runtime/run/option_table.h"
#include "trainer_template/runtime/run/task.h"
