// The output of --print-config: a file for --config.
#pragma once

#include <string>

#include <torchbridge/option_table.h>

namespace torchbridge::train {

// TOML with every option, its value and its help. An option that is not set is a comment. Throws
// EarlyExit for a value with bytes that no TOML file has.
std::string config_file(OptionTable& options, const std::string& program);

}  // namespace torchbridge::train
