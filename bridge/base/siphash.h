// A message authentication code: SipHash-2-4, 64 bits
// (https://www.aumasson.jp/siphash).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace torchbridge {

// 128 random bits; the first half is the one that SipHash's paper calls k0.
using SipKey = std::array<std::uint64_t, 2>;

// Without the key the code of a new text cannot be computed, nor the key from known codes.
std::uint64_t siphash(const SipKey& key, std::string_view text);

}  // namespace torchbridge
