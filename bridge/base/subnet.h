// Address ranges in CIDR notation (RFC 4632, RFC 4291): "10.1.0.0/16", "fd00::/8".
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "bridge/base/result.h"

namespace torchbridge {

class Subnet {
 public:
  // Bits of the address behind the prefix may be set, as in "10.1.2.3/16". The error shows the
  // text.
  static Result<Subnet> parse(std::string_view text);

  // False for an address of the other family, and for text that is no numeric address.
  bool contains(const std::string& numeric_address) const;

 private:
  int family_ = 0;
  int prefix_bits_ = 0;
  std::array<std::uint8_t, 16> address_{};  // network byte order; the first 4 for IPv4
};

}  // namespace torchbridge
