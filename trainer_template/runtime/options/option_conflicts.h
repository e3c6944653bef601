// Conflicts between options.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <torchbridge/options.h>

namespace torchbridge::train {

// Throws CLI::ValidationError, which names an option, the reason, and what to give instead. Reads
// no file and needs no other rank.
void check_together(const Options& options);

// A line for each option that has a value other than its default and no effect on a training with
// the other options. `is_given(name)`: whether the user gave the option such a value.
std::vector<std::string> options_without_effect(
    const Options& options, const std::function<bool(const std::string&)>& is_given);

}  // namespace torchbridge::train
