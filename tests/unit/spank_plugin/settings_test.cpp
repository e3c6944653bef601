#include "spank_plugin/settings.h"

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

TEST(Settings, AskForNothingByThemselves) {
  Settings settings;
  settings.set_site_defaults("ranks=block");
  EXPECT_FALSE(settings.resolve(std::nullopt)->has_value());
  EXPECT_FALSE(settings.resolve("")->has_value());
}

TEST(Settings, CommandLineWinsOverVariableOverSite) {
  Settings settings;
  settings.set_site_defaults("ranks=block,port=1,omp=1");
  settings.set_command_line("port=3");
  const auto options = settings.resolve("port=2,omp=2");
  ASSERT_TRUE(options && *options);
  EXPECT_EQ((*options)->ranks, RankRule::kBlock);
  EXPECT_EQ((*options)->omp.number, 2);
  EXPECT_EQ((*options)->port.low, 3);
}

TEST(Settings, AnEmptyListOnTheCommandLineAsks) {
  Settings settings;
  settings.set_command_line("");
  EXPECT_TRUE(settings.resolve(std::nullopt)->has_value());
}

TEST(Settings, NameThePlaceOfAMistake) {
  Settings site;
  site.set_site_defaults("nonsense");
  EXPECT_TRUE(site.resolve(std::nullopt));  // nobody asked: not this user's trouble
  EXPECT_EQ(site.resolve("verbose").error().message.substr(0, 31), "plugstack.conf: unknown option ");
  EXPECT_EQ(Settings().resolve("nonsense").error().message.substr(0, 36), "TORCHBRIDGE_OPTIONS: unknown option ");
  Settings line;
  line.set_command_line("nonsense");
  EXPECT_EQ(line.resolve(std::nullopt).error().message.substr(0, 28), "--torch-env: unknown option ");
}

}  // namespace
}  // namespace torchbridge
