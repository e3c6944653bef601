// A random token.
#pragma once

#include <string>

namespace torchbridge {

// 128 random bits of the kernel as 32 hexadecimal digits; empty while the kernel's generator is not
// initialised.
std::string random_token();
inline constexpr std::size_t kTokenSize = 32;

}  // namespace torchbridge
