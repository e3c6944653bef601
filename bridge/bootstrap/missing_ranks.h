// What is said of ranks that were waited for in vain.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "bridge/base/result.h"

namespace torchbridge {

// "60 s", "0.3 s": how long was waited, for messages.
std::string seconds(std::chrono::milliseconds time);

// Names the ranks, which are the indices of `came`, that did not come within `timeout`.
Error missing_ranks_error(const std::vector<bool>& came, std::chrono::milliseconds timeout);

}  // namespace torchbridge
