// A random token.
#pragma once

#include <string>
#include <string_view>

namespace torchbridge {

// 128 random bits of the kernel as 32 hexadecimal digits; empty while the kernel's generator is not initialised.
std::string random_token();
inline constexpr std::size_t kTokenSize = 32;

// Compares what a peer sent with a token, in a time that does not show how much of it is right.
bool is_same_token(std::string_view received, std::string_view token);

}  // namespace torchbridge
