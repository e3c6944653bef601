#include "bridge/base/siphash.h"

#include <bit>
#include <cstddef>

namespace torchbridge {
namespace {

class SipState {
 public:
  explicit SipState(const SipKey& key)
      : v_{key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d, key[0] ^ 0x6c7967656e657261,
           key[1] ^ 0x7465646279746573} {}

  void absorb(std::uint64_t word) {
    v_[3] ^= word;
    rounds(2);
    v_[0] ^= word;
  }

  std::uint64_t finish() {
    v_[2] ^= 0xff;
    rounds(4);
    return v_[0] ^ v_[1] ^ v_[2] ^ v_[3];
  }

 private:
  void rounds(int count) {
    auto& [a, b, c, d] = v_;
    for (int i = 0; i < count; ++i) {
      a += b, b = std::rotl(b, 13) ^ a, a = std::rotl(a, 32);
      c += d, d = std::rotl(d, 16) ^ c;
      a += d, d = std::rotl(d, 21) ^ a;
      c += b, b = std::rotl(b, 17) ^ c, c = std::rotl(c, 32);
    }
  }

  std::uint64_t v_[4];
};

// Up to eight bytes, the first one lowest.
std::uint64_t word_of(std::string_view bytes) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) word |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return word;
}

}  // namespace

std::uint64_t siphash(const SipKey& key, std::string_view text) {
  SipState state(key);
  const std::uint64_t length = text.size();
  for (; text.size() >= 8; text.remove_prefix(8)) state.absorb(word_of(text.substr(0, 8)));
  state.absorb(word_of(text) | length << 56);
  return state.finish();
}

}  // namespace torchbridge
