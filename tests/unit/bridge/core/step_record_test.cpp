#include "bridge/core/step_record.h"

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

const std::vector<std::string> kNodes = {"n0", "n1", "n2"};

TEST(StepRecord, ContainsTheNodeOfEachRank) {
  const struct {
    std::vector<StepComponent> components;
    const char* record;
    std::vector<int> node_of_rank;
  } kCases[] = {
      {{{"n[1,0]", {0, 1, 0}}}, "1 7.0 n[1,0] 0,1,0", {1, 0, 1}},
      {{{"n[0-2]", {2, 2, 0, 0, 0, 1}}}, "1 7.0 n[0-2] 2*2,0*3,1", {2, 2, 0, 0, 0, 1}},
      {{{"n2", {0, 0}}, {"n[0-1]", {1, 0}}}, "1 7.0 n2 0*2 n[0-1] 1,0", {2, 2, 1, 0}},
  };
  for (const auto& test : kCases) {
    EXPECT_EQ(step_record("7.0", test.components), test.record);
    EXPECT_EQ(
        node_of_rank_in(test.record, "7.0", kNodes, static_cast<int>(test.node_of_rank.size())),
        test.node_of_rank)
        << test.record;
  }
}

TEST(StepRecord, MayContainTheAddressOfRankZero) {
  EXPECT_EQ(step_record("7.0", {}, "10.0.0.1"), "1 7.0 @10.0.0.1");
  const auto record = step_record("7.0", {{"n[0-1]", {1, 0}}}, "10.0.0.1");
  EXPECT_EQ(record, "1 7.0 @10.0.0.1 n[0-1] 1,0");
  EXPECT_EQ(node_of_rank_in(record, "7.0", kNodes, 2), (std::vector<int>{1, 0}));
  EXPECT_EQ(address_in(record, "7.0"), "10.0.0.1");
  for (const char* other :
       {"", "1 7.0", "1 7.0 n[0-1] 1,0", "1 7.1 @10.0.0.1", "1 7.0 @", "1 7.0@10.0.0.1"}) {
    EXPECT_EQ(address_in(other, "7.0"), "") << other;
  }
}

TEST(StepRecord, OfAnotherStepOrShapeIsIgnored) {
  ASSERT_EQ(node_of_rank_in("1 7.0 n[0-2] 0,1,2", "7.0", kNodes, 3).size(), 3u);
  for (const char* record :
       {"", "1", "1 7.0", "1 7.0 ", "1 7.1 n[0-2] 0,1,2", "1 7.01 n[0-2] 0,1,2",
        "1 17.0 n[0-2] 0,1,2", "2 7.0 n[0-2] 0,1,2", "1 7.0 n[0-2] 0,1", "1 7.0 n[0-2] 0,1,2,2",
        "1 7.0 n[0-2] 0,1,3", "1 7.0 n[0-2] 0,1,-1", "1 7.0 n[0-2] 0*99999999999",
        "1 7.0 n[0-2] 0*2*2", "1 7.0 n[0-3] 0,1,2", "1 7.0 n[0- 0*3", "1 7.0 n[0-2] 0*0,0*3",
        "1 7.0 n[0-2]", "1 7.0 truncated"}) {
    EXPECT_TRUE(node_of_rank_in(record, "7.0", kNodes, 3).empty()) << record;
  }
}

TEST(StepRecord, IsTruncatedWhereItWouldBeTooLong) {
  std::vector<int> alternating;
  for (int rank = 0; rank < 8000; ++rank) alternating.push_back(rank % 2);
  EXPECT_FALSE(is_truncated(step_record("7.0", {{"n[0-1]", alternating}}), "7.0"));
  std::vector<int> many;
  for (int rank = 0; rank < 50000; ++rank) many.push_back(rank % 2);
  const auto record = step_record("7.0", {{"n[0-1]", many}});
  EXPECT_LE(record.size(), kMaxStepRecord);
  EXPECT_TRUE(is_truncated(record, "7.0"));
  EXPECT_FALSE(is_truncated(record, "7.1"));
  EXPECT_TRUE(node_of_rank_in(record, "7.0", kNodes, 50000).empty());
}

}  // namespace
}  // namespace torchbridge
