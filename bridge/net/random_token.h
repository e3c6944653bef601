// A random token.
#pragma once

#include <sys/random.h>

#include <string>

#include "bridge/base/hex_text.h"

namespace torchbridge {

inline constexpr std::size_t kTokenSize = 32;

// 128 random bits of the kernel as 32 hexadecimal digits; empty while the kernel's generator is not
// initialised.
inline std::string random_token() {
  std::string bytes(kTokenSize / 2, '\0');
  const auto size = getrandom(bytes.data(), bytes.size(), GRND_NONBLOCK);
  return size == static_cast<ssize_t>(bytes.size()) ? hex_of(bytes) : "";
}

}  // namespace torchbridge
