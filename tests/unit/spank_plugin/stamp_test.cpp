#include "spank_plugin/stamp.h"

#include <unistd.h>

#include <cstdlib>

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

const std::string kToken(32, 'a');

constexpr const char* kReplaced[] = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "PET_NNODES"};

class StampTest : public ::testing::Test {
 protected:
  StampTest() { clear(); }
  ~StampTest() override { clear(); }

  static void clear() {
    clear_stamp();
    for (const char* name : kReplaced) unsetenv(name);
  }
};

const Asked kNothing;
const Asked kOverride{.list = "override=yes", .options = {.override_user = true}};
const char* const kWords = "torch_env.so-is-not-loaded-on-this-node";

TEST_F(StampTest, TellsTheNodesAllTheyNeed) {
  const auto reporter = FailureListener::open();
  ASSERT_TRUE(reporter);
  EXPECT_FALSE(has_stamp());
  set_stamp({.list = "ranks=block,addr=n 1", .options = {}}, reporter.get());
  EXPECT_TRUE(has_stamp());
  EnvMap environment = EnvMap::from(environ);
  const auto stamp = Stamp::from(environment);
  ASSERT_TRUE(stamp);
  EXPECT_EQ(stamp->list, "ranks=block,addr=n 1");
  EXPECT_EQ(reporter_in(environment).port, 0);
  environment.set("SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1");
  EXPECT_EQ(reporter_in(environment).host, "10.0.0.1");
  EXPECT_EQ(reporter_in(environment).port, reporter->port());
  EXPECT_EQ(reporter_in(environment).token, reporter->token());
}

TEST_F(StampTest, OfASrunWithoutReporterNamesNone) {
  set_stamp(kNothing, nullptr);
  const auto stamp = Stamp::from(EnvMap::from(environ));
  ASSERT_TRUE(stamp);
  EXPECT_EQ(stamp->list, "");
  EXPECT_EQ(stamp->port, 0);
  EXPECT_FALSE(Stamp::from({}));
}

TEST_F(StampTest, AProgramWithoutThePluginFindsWordsInsteadOfARank) {
  set_stamp(kNothing, nullptr);
  for (const char* name : kReplaced) EXPECT_STREQ(getenv(name), kWords) << name;
}

TEST_F(StampTest, WhatTheUserExportedStaysUnlessItIsReplacedAnyway) {
  setenv("WORLD_SIZE", "4", 1);
  set_stamp(kNothing, nullptr);
  EXPECT_STREQ(getenv("WORLD_SIZE"), "4");
  set_stamp(kOverride, nullptr);
  EXPECT_STREQ(getenv("WORLD_SIZE"), kWords);
}

TEST_F(StampTest, OursAreTheStampAndTheWords) {
  set_stamp(kNothing, nullptr);
  for (const char* name : kReplaced) EXPECT_TRUE(is_ours(name, getenv(name))) << name;
  EXPECT_TRUE(is_ours("SLURM_TORCH_ENV", getenv("SLURM_TORCH_ENV")));
  EXPECT_FALSE(is_ours("RANK", "3"));
  EXPECT_FALSE(is_ours("GROUP_RANK", kWords));
  EXPECT_FALSE(is_ours("SLURM_TORCH_ENV_STEP", "1 7.0 n0 0"));
}

// Its reporter is told of it.
TEST_F(StampTest, AnotherVersionIsAnError) {
  for (const char* version : {"1", "3", "", "-2", "99999999999999999999", "%n%s"}) {
    const EnvMap environment = {{"SLURM_TORCH_ENV", std::string(version) + " 20001 " + kToken + " words=unknown"},
                                {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1"}};
    const auto options = asked_options({}, environment);
    ASSERT_FALSE(options) << version;
    EXPECT_NE(options.error().message.find(" speaks version 2 and that of srun version '" + std::string(version) +
                                           "': install the same torch_env.so on both"),
              std::string::npos)
        << options.error().message;
    EXPECT_EQ(reporter_in(environment).port, 20001);
    EXPECT_EQ(reporter_in(environment).token, kToken);
  }
}

TEST_F(StampTest, ThatIsNoStampReachesNobody) {
  for (const char* value : {"2", "2 ", "2 x", "2 70000 aaaa", "2 -1 aaaa", "2  "}) {
    EXPECT_EQ(reporter_in({{"SLURM_TORCH_ENV", value}, {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1"}}).port, 0) << value;
  }
}

}  // namespace
}  // namespace torchbridge
