// What --print-config prints: a file for --config.
#pragma once

#include <string>

#include "trainer_template/runtime/options/option_table.h"

namespace torchbridge::train {

// TOML, with every option, its value and its help.
std::string config_file(OptionTable& options, const std::string& program);

}  // namespace torchbridge::train
