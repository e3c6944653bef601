#include "bridge/base/json_depth.h"

#include <string>

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

TEST(JsonDepth, CountsBracketsOutsideStrings) {
  EXPECT_TRUE(is_json_deeper_than(2, R"({"a": [1, 2], "b": [[]]})"));
  EXPECT_FALSE(is_json_deeper_than(3, R"({"a": [1, 2], "b": [[]]})"));
  EXPECT_FALSE(is_json_deeper_than(1, R"(["[[[", "\"[[", "\\"])"));
  EXPECT_TRUE(is_json_deeper_than(1, R"(["\\", []])"));
  EXPECT_TRUE(is_json_deeper_than(16, std::string(1 << 20, '[')));
  EXPECT_FALSE(is_json_deeper_than(1, "]]]}}"));
}

}  // namespace
}  // namespace torchbridge
