#include "bridge/base/subnet.h"

#include <arpa/inet.h>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"

namespace torchbridge {
namespace {

// The family of a numeric address, whose bytes are put into `address`; 0 for anything else.
int read_address(const std::string& text, std::array<std::uint8_t, 16>& address) {
  if (inet_pton(AF_INET, text.c_str(), address.data()) == 1) return AF_INET;
  if (inet_pton(AF_INET6, text.c_str(), address.data()) == 1) return AF_INET6;
  return 0;
}

}  // namespace

Result<Subnet> Subnet::parse(std::string_view text) {
  const auto slash = text.find('/');
  Subnet subnet;
  subnet.family_ = read_address(std::string(text.substr(0, slash)), subnet.address_);
  const int most = subnet.family_ == AF_INET ? 32 : 128;
  const auto bits = slash == std::string_view::npos
                        ? std::nullopt
                        : parse_integer(text.substr(slash + 1), 0, most);
  if (subnet.family_ == 0 || !bits) {
    return Error{formatted("subnet '{}': expected ADDRESS/BITS, as 10.1.0.0/16 or fd00::/8",
                           printable(text))};
  }
  subnet.prefix_bits_ = static_cast<int>(*bits);
  return subnet;
}

bool Subnet::contains(const std::string& numeric_address) const {
  std::array<std::uint8_t, 16> address{};
  if (read_address(numeric_address, address) != family_) return false;
  for (int bit = 0; bit < prefix_bits_; bit += 8) {
    const int left = prefix_bits_ - bit;
    const std::uint8_t mask = left >= 8 ? 0xff : static_cast<std::uint8_t>(0xff << (8 - left));
    if (((address[bit / 8] ^ address_[bit / 8]) & mask) != 0) return false;
  }
  return true;
}

}  // namespace torchbridge
