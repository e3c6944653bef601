// Checks the variables that the user exported, which the job keeps, for valid values.
#pragma once

#include <string>

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"

namespace torchbridge {

// What is exported, but empty, counts as not set: a script has made it of a value that it does not
// have.
struct SetValues {
  EnvMap environment;  // without those of torchbridge's variables that are empty
  std::string note;    // for the user, with their names; empty where there are none
};
// Kept are those for which empty is a value, as CUDA_VISIBLE_DEVICES. `is_by_hand`: also the ranks,
// the sizes and the address, as no launcher gives right ones.
SetValues without_empty(const EnvMap& user, bool is_by_hand = false);

// Checks the variables that torchbridge sets for programs, and those that it reads: the error names
// the first that is empty, too long, out of range, not UTF-8 or contains control characters. The
// same on every task, since all have the same exports. With `override_user` only the variables are
// checked that are read in any case.
Status check_exported(const EnvMap& user, bool override_user);

}  // namespace torchbridge
