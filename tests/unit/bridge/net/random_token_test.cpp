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

}  // namespace
}  // namespace torchbridge
