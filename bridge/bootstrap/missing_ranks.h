// The message for ranks that did not arrive in time.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "bridge/base/result.h"

namespace torchbridge {

// "60 s", "0.3 s": a duration, for messages.
std::string seconds(std::chrono::milliseconds time);

// Names the ranks, which are the indices of `arrived`, that did not arrive within `timeout`.
Error missing_ranks_error(const std::vector<bool>& arrived, std::chrono::milliseconds timeout);

}  // namespace torchbridge
