// A message authentication code: HMAC-SHA256 (FIPS 180-4, RFC 2104).
#pragma once

#include <string>
#include <string_view>

namespace torchbridge {

// 32 bytes, as hmac_sha256() gives.
std::string sha256(std::string_view text);

// Without the key the code of a new text cannot be computed, nor the key from known codes.
std::string hmac_sha256(std::string_view key, std::string_view text);

}  // namespace torchbridge
