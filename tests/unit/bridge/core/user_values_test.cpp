#include "bridge/core/user_values.h"

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

const std::vector<Variable> kRankOneOfTwo = {
    {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "20000"}};

TEST(VariablesToSet, KeepsWhatTheUserExported) {
  const auto chosen = variables_to_set(
      kRankOneOfTwo, {{"MASTER_PORT", "29500"}, {"WORLD_SIZE", "2"}}, false, false);
  ASSERT_TRUE(chosen) << chosen.error().message;
  EXPECT_EQ(*chosen, (std::vector<Variable>{{"RANK", "1"}}));
}

TEST(VariablesToSet, ReplacesItWithOverride) {
  EXPECT_EQ(
      *variables_to_set(kRankOneOfTwo, {{"MASTER_PORT", "29500"}, {"RANK", "0"}}, true, false),
      kRankOneOfTwo);
}

TEST(VariablesToSet, RejectsAnotherRank) {
  for (const char* name : {"RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "LOCAL_WORLD_SIZE"}) {
    const auto chosen =
        variables_to_set({{name, "1"}, {"WORLD_SIZE", "2"}}, {{name, "0"}}, false, false);
    ASSERT_FALSE(chosen) << name;
    EXPECT_EQ(chosen.error().message,
              std::string(name) +
                  "='0' is exported, but this task's value is '1': unset it, or give override=yes");
  }
}

TEST(VariablesToSet, TakesTheTasksOwnRank) {
  const auto chosen =
      variables_to_set(kRankOneOfTwo, {{"RANK", "1"}, {"LOCAL_RANK", "1"}}, false, false);
  ASSERT_TRUE(chosen) << chosen.error().message;
  EXPECT_EQ(*chosen, (std::vector<Variable>{{"WORLD_SIZE", "2"}, {"MASTER_PORT", "20000"}}));
}

// torchrun and `torchbridge run` set those of their workers.
TEST(VariablesToSet, ReplacesRanksAndSizesForAnAgent) {
  const auto chosen = variables_to_set(
      kRankOneOfTwo, {{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"MASTER_PORT", "29500"}}, false, true);
  ASSERT_TRUE(chosen) << chosen.error().message;
  EXPECT_EQ(*chosen, (std::vector<Variable>{{"RANK", "1"}, {"WORLD_SIZE", "2"}}));
}

TEST(VariablesToSet, RejectsAWrongSize) {
  const auto chosen = variables_to_set(kRankOneOfTwo, {{"WORLD_SIZE", "4"}}, false, false);
  ASSERT_FALSE(chosen);
  EXPECT_EQ(
      chosen.error().message,
      "WORLD_SIZE='4' is exported, but this task's value is '2': unset it, or give override=yes");
}

}  // namespace
}  // namespace torchbridge
