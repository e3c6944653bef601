#include "bridge/base/hmac_sha256.h"

#include <bit>
#include <cstddef>
#include <cstdint>

namespace torchbridge {
namespace {

constexpr std::size_t kBlock = 64;  // bytes

// FIPS 180-4, section 4.2.2.
constexpr std::uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

class Sha256State {
 public:
  void absorb(const char* block) {
    std::uint32_t w[64];
    for (std::size_t i = 0; i < 16; ++i) {
      const auto byte = [&](std::size_t j) {
        return std::uint32_t{static_cast<unsigned char>(block[4 * i + j])};
      };
      w[i] = byte(0) << 24 | byte(1) << 16 | byte(2) << 8 | byte(3);
    }
    for (std::size_t i = 16; i < 64; ++i) {
      const std::uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
      const std::uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = h_;
    for (std::size_t i = 0; i < 64; ++i) {
      const std::uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const std::uint32_t first = h + s1 + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
      const std::uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      const std::uint32_t second = s0 + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + first, d = c, c = b, b = a, a = first + second;
    }
    const std::uint32_t next[8] = {a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < 8; ++i) h_[i] += next[i];
  }

  std::string digest() const {
    std::string bytes(sizeof h_, '\0');
    for (std::size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<char>(h_[i / 4] >> (24 - 8 * (i % 4)) & 0xff);
    return bytes;
  }

 private:
  std::uint32_t h_[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
};

// `key` filled up to a block and combined with `byte`.
std::string padded(std::string_view key, unsigned char byte) {
  std::string block(kBlock, static_cast<char>(byte));
  for (std::size_t i = 0; i < key.size(); ++i) block[i] = static_cast<char>(block[i] ^ key[i]);
  return block;
}

}  // namespace

std::string sha256(std::string_view text) {
  Sha256State state;
  const std::uint64_t bits = std::uint64_t{text.size()} * 8;
  for (; text.size() >= kBlock; text.remove_prefix(kBlock)) state.absorb(text.data());
  // A bit 1, zeros, and the number of bits in the last eight bytes of a block.
  std::string rest(text);
  rest += '\x80';
  rest.resize(rest.size() <= kBlock - 8 ? kBlock : 2 * kBlock);
  for (std::size_t i = 0; i < 8; ++i)
    rest[rest.size() - 1 - i] = static_cast<char>(bits >> (8 * i) & 0xff);
  for (std::size_t at = 0; at < rest.size(); at += kBlock) state.absorb(rest.data() + at);
  return state.digest();
}

std::string hmac_sha256(std::string_view key, std::string_view text) {
  const std::string short_key = key.size() > kBlock ? sha256(key) : std::string(key);
  constexpr unsigned char kInner = 0x36, kOuter = 0x5c;
  return sha256(padded(short_key, kOuter) + sha256(padded(short_key, kInner).append(text)));
}

}  // namespace torchbridge
