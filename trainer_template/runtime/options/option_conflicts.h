// Options that do not go together.
#pragma once

#include "trainer_template/runtime/options/options.h"

namespace torchbridge::train {

// Throws CLI::ValidationError, which names an option, why, and what to give instead. Needs no file and no other rank.
void check_together(const Options& options);

}  // namespace torchbridge::train
