#include "bridge/net/random_token.h"

#include <sys/random.h>

#include <cstdio>

namespace torchbridge {

std::string random_token() {
  unsigned char bytes[kTokenSize / 2];
  if (getrandom(bytes, sizeof bytes, GRND_NONBLOCK) != sizeof bytes) return {};
  std::string token;
  for (const unsigned char byte : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", byte);
    token += digits;
  }
  return token;
}

}  // namespace torchbridge
