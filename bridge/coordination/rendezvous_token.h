// The token of a run over several nodes, by which its agents and `torchbridge status` prove that
// they belong to it.
#pragma once

#include <string>

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"

namespace torchbridge {

// The content of `file` without the blanks around it where the name is not empty, else the variable
// kTokenVariable; empty where there is none. An error where the token is too short or too long,
// where the file cannot be read, and where another user can read or write it. Errors do not contain
// the token.
Result<std::string> rendezvous_token(const std::string& file, const EnvMap& environment);

}  // namespace torchbridge
