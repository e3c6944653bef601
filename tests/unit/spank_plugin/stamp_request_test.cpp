#include <gtest/gtest.h>

#include "spank_plugin/stamp.h"

namespace torchbridge {
namespace {

EnvMap exported(const char* list) { return {{"TORCHBRIDGE_OPTIONS", list}}; }

TEST(AskedBy, TheSiteAloneIsNothing) {
  EXPECT_FALSE(asked_by({.site = "ranks=block", .command_line = {}}, {})->has_value());
  EXPECT_FALSE(asked_by({.site = "ranks=block", .command_line = {}}, exported(""))->has_value());
}

TEST(AskedBy, CommandLineWinsOverVariableOverSite) {
  const auto asked = asked_by({.site = "ranks=block,port=1,omp=1", .command_line = "port=3"}, exported("port=2,omp=2"));
  ASSERT_TRUE(asked && *asked);
  const LaunchOptions& options = (*asked)->options;
  EXPECT_EQ(options.ranks, RankRule::kBlock);
  EXPECT_EQ(options.omp.number, 2);
  EXPECT_EQ(options.port.low, 3);
  EXPECT_EQ((*asked)->list, "ranks=block,port=1,omp=1,port=2,omp=2,port=3");
  EXPECT_EQ(*parse_options((*asked)->list), options);
}

TEST(AskedBy, AnEmptyListOnTheCommandLine) {
  const auto asked = asked_by({.site = "", .command_line = ""}, {});
  ASSERT_TRUE(asked && *asked);
  EXPECT_EQ((*asked)->list, "");
}

TEST(AskedBy, NamesThePlaceOfAMistake) {
  const Lists site{.site = "nonsense", .command_line = {}}, line{.site = "", .command_line = "nonsense"};
  EXPECT_TRUE(asked_by(site, {}));  // nobody asked: not this user's trouble
  EXPECT_EQ(asked_by(site, exported("verbose")).error().message.substr(0, 31), "plugstack.conf: unknown option ");
  EXPECT_EQ(asked_by({}, exported("nonsense")).error().message.substr(0, 36), "TORCHBRIDGE_OPTIONS: unknown option ");
  EXPECT_EQ(asked_by(line, {}).error().message.substr(0, 28), "--torch-env: unknown option ");
}

// The node's own list and the variable count where srun has no plugin.
TEST(AskedOptions, AreThoseOfTheStamp) {
  const Lists node{.site = "omp=5", .command_line = {}};
  EnvMap environment = exported("ranks=block");
  EXPECT_EQ((*asked_options(node, environment))->omp.number, 5);
  environment.set("SLURM_TORCH_ENV", "2 0 - omp=7");
  const auto options = asked_options(node, environment);
  ASSERT_TRUE(options && *options);
  EXPECT_EQ((*options)->omp.number, 7);
  EXPECT_EQ((*options)->ranks, RankRule::kSlurm);
  EXPECT_FALSE(asked_options(node, {})->has_value());
}

}  // namespace
}  // namespace torchbridge
