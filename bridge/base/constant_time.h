// Comparison of what a peer sent with a secret.
#pragma once

#include <string_view>

namespace torchbridge {

// Takes a time that depends on the lengths alone, so that it does not show how much of a guess is
// right.
bool is_equal_in_constant_time(std::string_view left, std::string_view right);

}  // namespace torchbridge
