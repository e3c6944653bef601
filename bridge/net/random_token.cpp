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

bool is_same_token(std::string_view received, std::string_view token) {
  if (received.size() != token.size()) return false;
  volatile unsigned char difference = 0;  // volatile: the compiler must not end the loop early
  for (std::size_t i = 0; i < token.size(); ++i)
    difference = difference | static_cast<unsigned char>(received[i] ^ token[i]);
  return difference == 0;
}

}  // namespace torchbridge
