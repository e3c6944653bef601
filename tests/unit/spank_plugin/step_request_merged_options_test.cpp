#include <gtest/gtest.h>

#include "spank_plugin/step_request.h"

namespace torchbridge {
namespace {

EnvMap exported(const char* list) { return {{"TORCHBRIDGE_OPTIONS", list}}; }

TEST(MergedOptions, SiteDefaultsAloneRequestNothing) {
  EXPECT_FALSE(merged_options({.site = "ranks=block", .command_line = {}}, {})->has_value());
  EXPECT_FALSE(
      merged_options({.site = "ranks=block", .command_line = {}}, exported(""))->has_value());
}

TEST(MergedOptions, CommandLineWinsOverVariableOverSite) {
  const auto merged = merged_options({.site = "ranks=block,port=1,omp=1", .command_line = "port=3"},
                                     exported("port=2,omp=2"));
  ASSERT_TRUE(merged && *merged);
  const LaunchOptions& options = (*merged)->options;
  EXPECT_EQ(options.ranks, RankRule::kBlock);
  EXPECT_EQ(options.omp.number, 2);
  EXPECT_EQ(options.port.low, 3);
  EXPECT_EQ((*merged)->list, "ranks=block,port=1,omp=1,port=2,omp=2,port=3");
  EXPECT_EQ(*parse_options((*merged)->list), options);
}

TEST(MergedOptions, AnEmptyListOnTheCommandLineRequestsThePlugin) {
  const auto merged = merged_options({.site = "", .command_line = ""}, {});
  ASSERT_TRUE(merged && *merged);
  EXPECT_EQ((*merged)->list, "");
}

TEST(MergedOptions, AnErrorNamesTheSource) {
  const OptionLists site{.site = "nonsense", .command_line = {}},
      line{.site = "", .command_line = "nonsense"};
  EXPECT_TRUE(merged_options(site, {}));  // not requested: no error for this user
  EXPECT_EQ(merged_options(site, exported("verbose")).error().message.substr(0, 31),
            "plugstack.conf: unknown option ");
  EXPECT_EQ(merged_options({}, exported("nonsense")).error().message.substr(0, 36),
            "TORCHBRIDGE_OPTIONS: unknown option ");
  EXPECT_EQ(merged_options(line, {}).error().message.substr(0, 28), "--torch-env: unknown option ");
}

// Without srun's request, where srun has no plugin, the node's own list and the variable are used.
TEST(RequestedOptions, AreThoseOfTheRequest) {
  const OptionLists node{.site = "omp=5", .command_line = {}};
  EnvMap environment = exported("ranks=block");
  EXPECT_EQ((*requested_options(node, environment))->omp.number, 5);
  environment.set("SLURM_TORCH_ENV", "6 0 - omp=7");
  const auto options = requested_options(node, environment);
  ASSERT_TRUE(options && *options);
  EXPECT_EQ((*options)->omp.number, 7);
  EXPECT_EQ((*options)->ranks, RankRule::kSlurm);
  EXPECT_FALSE(requested_options(node, {})->has_value());
}

}  // namespace
}  // namespace torchbridge
