// Conflicts between options.
#pragma once

#include <torchbridge/options.h>

namespace torchbridge::train {

// Throws CLI::ValidationError, which names an option, the reason, and what to give instead. Reads
// no file and needs no other rank.
void check_together(const Options& options);

}  // namespace torchbridge::train
