#include "bridge/base/message_text.h"

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

TEST(MessageText, HasEachValueAtItsPlace) {
  const std::string host = "n{}1";
  EXPECT_EQ(formatted("{}: rank {} of {}", host, 3, std::size_t{8}), "n{}1: rank 3 of 8");
  EXPECT_EQ(formatted("port {}, '{}'", std::int64_t{-1}, "a"), "port -1, 'a'");
  EXPECT_EQ(formatted("{}{}", std::string_view(), 0U), "0");
}

}  // namespace
}  // namespace torchbridge
