#include "bridge/base/constant_time.h"

#include <string>

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

TEST(ConstantTime, TextsAreEqualOnlyWhereEachByteIs) {
  const std::string token = "0123456789abcdef0123456789abcdef";
  EXPECT_TRUE(is_equal_in_constant_time("", ""));
  EXPECT_TRUE(is_equal_in_constant_time(token, token));
  EXPECT_FALSE(is_equal_in_constant_time("", token));
  EXPECT_FALSE(is_equal_in_constant_time(token.substr(1), token));
  EXPECT_FALSE(is_equal_in_constant_time(token + "0", token));
  for (std::size_t i = 0; i < token.size(); ++i) {
    std::string other = token;
    other[i] = static_cast<char>(other[i] ^ 0x80);
    EXPECT_FALSE(is_equal_in_constant_time(other, token)) << i;
  }
}

}  // namespace
}  // namespace torchbridge
