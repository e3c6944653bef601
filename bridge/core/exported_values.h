// Checks the variables that the user exported, which the job keeps, for valid values.
#pragma once

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"

namespace torchbridge {

// Checks the variables that torchbridge sets for programs, and those that it reads: the error names
// the first that is empty, too long, out of range, not UTF-8 or contains control characters. The
// same on every task, since all have the same exports. With `override_user` only the variables are
// checked that are read in any case.
Status check_exported(const EnvMap& user, bool override_user);

}  // namespace torchbridge
