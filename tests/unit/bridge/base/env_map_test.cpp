#include "bridge/base/env_map.h"

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

TEST(EnvMap, CopiesAnEnvironment) {
  const char* environment[] = {"A=1", "EMPTY=", "WITH=a=b", "no equals sign", "=nameless", nullptr};
  const EnvMap map = EnvMap::from(environment);
  EXPECT_EQ(map.get("A"), "1");
  EXPECT_EQ(map.get("EMPTY"), "");
  EXPECT_EQ(map.get("WITH"), "a=b");
  EXPECT_FALSE(map.has("MISSING"));
  EXPECT_EQ(std::distance(map.begin(), map.end()), 3);
}

TEST(EnvMap, OfNothingIsEmpty) {
  const EnvMap map = EnvMap::from(nullptr);
  EXPECT_EQ(map.begin(), map.end());
}

TEST(EnvMap, ReadsIntegersInRange) {
  const EnvMap map = {{"N", "7"}, {"LOW", "0"}, {"NEGATIVE", "-3"}};
  EXPECT_EQ(*map.integer("N", 0, 10), 7);
  EXPECT_EQ(*map.integer("LOW", 0, 10), 0);
  EXPECT_EQ(*map.integer("NEGATIVE", -5, 10), -3);
  EXPECT_EQ(*map.integer("MISSING", 0, 10), std::nullopt);
  EXPECT_EQ(*map.required_integer("N", 0, 10), 7);
}

TEST(EnvMap, RejectsMalformedIntegersAndNamesThem) {
  for (const char* text : {"", " 1", "1 ", "+1", "1x", "x", "0x10", "1.0", "11", "-1",
                           "99999999999999999999", "\xff"}) {
    const EnvMap map = {{"RANK", text}};
    const auto number = map.integer("RANK", 0, 10);
    ASSERT_FALSE(number) << "'" << text << "'";
    EXPECT_NE(number.error().message.find("RANK='" + printable(text) + "'"), std::string::npos)
        << number.error().message;
    EXPECT_NE(number.error().message.find("from 0 to 10"), std::string::npos)
        << number.error().message;
  }
}

TEST(EnvMap, NamesARequiredVariableThatIsMissing) {
  const EnvMap map = {{"EMPTY", ""}};
  EXPECT_EQ(map.required_integer("RANK", 0, 1).error().message, "RANK is not set");
  EXPECT_EQ(map.required("RANK").error().message, "RANK is not set");
  EXPECT_EQ(map.required("EMPTY").error().message, "EMPTY is empty");
}

TEST(Printable, EscapesControlCharacters) {
  EXPECT_EQ(printable("plain"), "plain");
  EXPECT_EQ(printable("a\nb\x1b[0m\xc3"), "a\\x0ab\\x1b[0m\\xc3");
  EXPECT_EQ(printable(std::string(100, 'x')), std::string(80, 'x') + "...");
}

}  // namespace
}  // namespace torchbridge
