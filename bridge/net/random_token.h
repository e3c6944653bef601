// A word that nobody can guess.
#pragma once

#include <string>

namespace torchbridge {

// 128 random bits of the kernel as 32 hexadecimal digits; empty where it has none to give yet.
std::string random_token();
inline constexpr std::size_t kTokenSize = 32;

}  // namespace torchbridge
