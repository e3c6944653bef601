#include <torchbridge/core/user_values.h>

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

const std::vector<Variable> kRankOneOfTwo = {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "20000"}};

TEST(VariablesToSet, KeepsWhatTheUserExported) {
  const auto chosen = variables_to_set(kRankOneOfTwo, {{"MASTER_PORT", "29500"}, {"WORLD_SIZE", "2"}}, false);
  ASSERT_TRUE(chosen) << chosen.error().message;
  EXPECT_EQ(*chosen, (std::vector<Variable>{{"RANK", "1"}}));
}

TEST(VariablesToSet, ReplacesItWhenAsked) {
  EXPECT_EQ(*variables_to_set(kRankOneOfTwo, {{"MASTER_PORT", "29500"}, {"RANK", "0"}}, true), kRankOneOfTwo);
}

TEST(VariablesToSet, RefusesAnExportedRankOnEveryTask) {
  // Rank 1 is the one that the exported value fits: it must fail with the others, or it would wait for them.
  for (const char* rank : {"0", "1"}) {
    const auto chosen = variables_to_set(kRankOneOfTwo, {{"RANK", rank}}, false);
    ASSERT_FALSE(chosen);
    EXPECT_EQ(chosen.error().message, "RANK='" + std::string(rank) + "' is exported, so that every task would have it: " +
                                          "unset it, or give override=yes");
  }
}

TEST(VariablesToSet, RefusesAWrongSize) {
  const auto chosen = variables_to_set(kRankOneOfTwo, {{"WORLD_SIZE", "4"}}, false);
  ASSERT_FALSE(chosen);
  EXPECT_EQ(chosen.error().message, "WORLD_SIZE='4' is exported, but here it is '2': unset it, or give override=yes");
}

TEST(VariablesToSet, TakesTheRightRankOfASingleTask) {
  const auto chosen = variables_to_set({{"RANK", "0"}, {"WORLD_SIZE", "1"}}, {{"RANK", "0"}}, false);
  ASSERT_TRUE(chosen) << chosen.error().message;
  EXPECT_EQ(*chosen, (std::vector<Variable>{{"WORLD_SIZE", "1"}}));
}

}  // namespace
}  // namespace torchbridge
