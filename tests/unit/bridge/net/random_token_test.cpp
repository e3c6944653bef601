#include "bridge/net/random_token.h"

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

TEST(RandomToken, IsLongAndNeverTheSame) {
  const std::string token = random_token();
  EXPECT_EQ(token.size(), kTokenSize);
  EXPECT_EQ(token.find_first_not_of("0123456789abcdef"), std::string::npos) << token;
  EXPECT_NE(random_token(), token);
}

TEST(RandomToken, IsTheSameOnlyWhereEachByteIs) {
  const std::string token = random_token();
  EXPECT_TRUE(is_same_token(token, token));
  EXPECT_FALSE(is_same_token("", token));
  EXPECT_FALSE(is_same_token(token.substr(1), token));
  EXPECT_FALSE(is_same_token(token + "0", token));
  for (std::size_t i = 0; i < token.size(); ++i) {
    std::string other = token;
    other[i] = static_cast<char>(other[i] ^ 0x80);
    EXPECT_FALSE(is_same_token(other, token)) << i;
  }
}

}  // namespace
}  // namespace torchbridge
