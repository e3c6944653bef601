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

// A line for each option to which the user gave a value of his own, and that has no effect with the
// others of a training. `is_given` tells it by the option's name.
std::vector<std::string> options_without_effect(
    const Options& options, const std::function<bool(const std::string&)>& is_given);

}  // namespace torchbridge::train
