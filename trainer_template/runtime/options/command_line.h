// The trainer's command line and TOML file.
#pragma once

#include <span>

#include "trainer_template/runtime/options/options.h"
#include "trainer_template/runtime/training/task.h"

namespace torchbridge::train {

// `kinds` must outlive the result; the first is the default of --task. Throws EarlyExit for --help, and for an unknown
// option or an invalid value, with the nearest valid name.
Options parse_command_line(int argc, char** argv, std::span<const TaskRegistration> kinds);

}  // namespace torchbridge::train
