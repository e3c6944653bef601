// Comparison of what a peer sent with a secret.
#pragma once

#include <cstddef>
#include <string_view>

namespace torchbridge {

// Takes a time that depends on the lengths alone, so that it does not show how much of a guess is
// right.
inline bool is_equal_in_constant_time(std::string_view left, std::string_view right) {
  if (left.size() != right.size()) return false;
  // volatile: the compiler may not leave the loop at the first difference.
  volatile unsigned char difference = 0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    difference = static_cast<unsigned char>(difference | (left[i] ^ right[i]));
  }
  return difference == 0;
}

}  // namespace torchbridge
