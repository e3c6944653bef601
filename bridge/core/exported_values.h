// Whether what the user exported, and the job therefore keeps, can be what its name says.
#pragma once

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"

namespace torchbridge {

// Of the variables that programs get from us, and of those that we read: an error names the first that is empty, too
// long, out of range, no UTF-8 or holds control characters. The same on every task, since all have the same exports.
// With `override_user` only those count that are read all the same.
Status check_exported(const EnvMap& user, bool override_user);

}  // namespace torchbridge
