#include "spank_plugin/handshake.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

namespace torchbridge {
namespace {

class HandshakeTest : public ::testing::Test {
 protected:
  HandshakeTest() { clear(); }
  ~HandshakeTest() override { clear(); }

  static void clear() {
    for (const char* name : {"RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_TORCH_ENV_PROTOCOL"}) unsetenv(name);
  }
};

TEST_F(HandshakeTest, AProgramWithoutThePluginFindsWordsInsteadOfARank) {
  announce_plugin(false);
  EXPECT_STREQ(getenv("RANK"), "torch_env.so-is-not-loaded-on-this-node");
  EXPECT_STREQ(getenv("LOCAL_RANK"), getenv("RANK"));
  EXPECT_STREQ(getenv("WORLD_SIZE"), getenv("RANK"));
}

TEST_F(HandshakeTest, WhatTheUserExportedStaysUnlessItIsReplacedAnyway) {
  setenv("WORLD_SIZE", "4", 1);
  announce_plugin(false);
  EXPECT_STREQ(getenv("WORLD_SIZE"), "4");
  announce_plugin(true);
  EXPECT_STREQ(getenv("WORLD_SIZE"), "torch_env.so-is-not-loaded-on-this-node");
}

TEST_F(HandshakeTest, TheNodeSeesTheEnvironmentOfTheUser) {
  setenv("WORLD_SIZE", "4", 1);
  announce_plugin(false);
  const EnvMap given = EnvMap::from(environ);
  const auto announcement = announcement_in(given);
  EXPECT_EQ(announcement.names.size(), 3u);
  const EnvMap rest = without(announcement, given);
  EXPECT_FALSE(rest.has("RANK") || rest.has("LOCAL_RANK") || rest.has("SLURM_TORCH_ENV_PROTOCOL"));
  EXPECT_EQ(rest.get("WORLD_SIZE"), "4");
  EXPECT_EQ(rest.has("PATH"), given.has("PATH"));
}

TEST_F(HandshakeTest, AnotherVersionIsAnErrorAndNoneIsNot) {
  announce_plugin(false);
  EXPECT_TRUE(same_version(announcement_in(EnvMap::from(environ)), "n1"));
  EXPECT_TRUE(same_version(announcement_in({}), "n1"));
  for (const char* version : {"2", "", "1 ", "-1", "99999999999999999999", "%n%s"}) {
    const auto same = same_version(announcement_in({{"SLURM_TORCH_ENV_PROTOCOL", version}}), "n1");
    ASSERT_EQ(static_cast<bool>(same), *version == '\0') << version;
    if (!same) {
      EXPECT_EQ(same.error().message, "the plugin on n1 speaks version 1 and that of srun version '" + std::string(version) +
                                          "': install the same torch_env.so on both");
    }
  }
}

}  // namespace
}  // namespace torchbridge
