#include "bridge/net/random_token.h"

#include <sys/random.h>

#include "bridge/base/hex_text.h"

namespace torchbridge {

std::string random_token() {
  std::string bytes(kTokenSize / 2, '\0');
  const auto size = getrandom(bytes.data(), bytes.size(), GRND_NONBLOCK);
  return size == static_cast<ssize_t>(bytes.size()) ? hex_of(bytes) : "";
}

}  // namespace torchbridge
