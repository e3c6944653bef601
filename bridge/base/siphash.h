// A short proof that a text comes from somebody who knows a key: SipHash-2-4, 64 bits
// (https://www.aumasson.jp/siphash).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace torchbridge {

// 128 bits that nobody else can guess; the first half is the one that SipHash's paper calls k0.
using SipKey = std::array<std::uint64_t, 2>;

// Who does not know the key can neither make the proof of a text that he has not seen it for, nor learn the key from
// proofs.
std::uint64_t siphash(const SipKey& key, std::string_view text);

}  // namespace torchbridge
