#include "bridge/base/siphash.h"

#include <string>

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

// The authors' test vectors (https://github.com/veorq/SipHash, vectors.h): key 00..0f, texts 00, 00 01, 00 01 02 ...
TEST(SipHash, AgreesWithItsAuthors) {
  const SipKey key{0x0706050403020100, 0x0f0e0d0c0b0a0908};
  const struct {
    int length;
    std::uint64_t hash;
  } kCases[] = {{0, 0x726fdb47dd0e0e31}, {1, 0x74f839c593dc67fd}, {8, 0x93f5f5799a932462}, {15, 0xa129ca6149be45e5}};
  for (const auto& test : kCases) {
    std::string text;
    for (int i = 0; i < test.length; ++i) text += static_cast<char>(i);
    EXPECT_EQ(siphash(key, text), test.hash) << test.length;
  }
}

}  // namespace
}  // namespace torchbridge
