// A message authentication code: HMAC-SHA256 (FIPS 180-4, RFC 2104).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace torchbridge {

using Sha256Digest = std::array<std::uint8_t, 32>;

Sha256Digest sha256(std::string_view text);

// Without the key the code of a new text cannot be computed, nor the key from known codes.
Sha256Digest hmac_sha256(std::string_view key, std::string_view text);

// 64 hexadecimal digits, in lower case.
std::string hex_of(const Sha256Digest& digest);

}  // namespace torchbridge
