#include "bridge/coordination/round_plan.h"

#include <gtest/gtest.h>

using namespace torchbridge;

namespace {

std::vector<int> members_of(const std::vector<RoundAssignment>& places) {
  std::vector<int> members;
  for (const RoundAssignment& place : places) members.push_back(place.member);
  return members;
}

struct PlanCase {
  const char* name;
  std::vector<Candidate> candidates;  // member, workers, order, node, previous slot
  int active;
  std::vector<int> members;  // by position
};

const PlanCase kPlanCases[] = {
    {"the first round has the launcher's order", {{1, 1, 2}, {2, 1, 0}, {3, 1, 1}}, 3, {2, 3, 1}},
    {"without an order, that of joining", {{1}, {2}, {3}}, 3, {1, 2, 3}},
    {"those without an order come last", {{1}, {2, 1, 0}}, 2, {2, 1}},
    {"more than active wait", {{1}, {2}, {3}}, 2, {1, 2}},
    {"positions stay", {{1, 1, -1, "", 2}, {2, 1, -1, "", 0}, {3, 1, -1, "", 1}}, 3, {2, 3, 1}},
    {"a new one takes the open position",
     {{1, 1, -1, "", 0}, {3, 1, -1, "", 2}, {9}},
     3,
     {1, 9, 3}},
    {"without a new one they close up", {{1, 1, -1, "", 0}, {3, 1, -1, "", 2}}, 3, {1, 3}},
    {"one more is added at the end",
     {{1, 1, -1, "", 0}, {2, 1, -1, "", 1}, {9, 1, 0}},
     3,
     {1, 2, 9}},
    {"who took part before goes first", {{9}, {1, 1, -1, "", 0}, {2, 1, -1, "", 1}}, 2, {1, 2}},
};

TEST(RoundPlan, KeepsPositionsWhereItCan) {
  for (const PlanCase& c : kPlanCases)
    EXPECT_EQ(members_of(plan_round(c.candidates, c.active)), c.members) << c.name;
}

TEST(RoundPlan, NumbersRanksAgentByAgentAlsoOfDifferentSizes) {
  const auto places = plan_round({{1, 7}, {2, 8}, {3, 8}}, 3);
  ASSERT_EQ(places.size(), 3u);
  EXPECT_EQ(places[0], (RoundAssignment{1, 0, 0, 3, 0, 23, 0, 7, 0, 23}));
  EXPECT_EQ(places[1], (RoundAssignment{2, 1, 1, 3, 7, 23, 0, 8, 7, 23}));
  EXPECT_EQ(places[2], (RoundAssignment{3, 2, 2, 3, 15, 23, 0, 8, 15, 23}));
}

TEST(RoundPlan, NumbersLocalRanksByNodeAlsoWhereItsAgentsAreApart) {
  // One task for each rank, distributed cyclically over two nodes.
  const auto places =
      plan_round({{1, 1, 0, "a"}, {2, 1, 1, "b"}, {3, 1, 2, "a"}, {4, 1, 3, "b"}}, 4);
  ASSERT_EQ(places.size(), 4u);
  EXPECT_EQ(places[0], (RoundAssignment{1, 0, 0, 2, 0, 4, 0, 2, 0, 4}));
  EXPECT_EQ(places[1], (RoundAssignment{2, 1, 1, 2, 1, 4, 0, 2, 1, 4}));
  EXPECT_EQ(places[2], (RoundAssignment{3, 2, 0, 2, 2, 4, 1, 2, 2, 4}));
  EXPECT_EQ(places[3], (RoundAssignment{4, 3, 1, 2, 3, 4, 1, 2, 3, 4}));
}

TEST(RoundPlan, NumbersTheRanksOfEachRoleByThemselves) {
  const auto places = plan_round({{1, 1, 0, "", -1, "master"},
                                  {2, 2, 1, "", -1, "trainer"},
                                  {3, 3, 2, "", -1, "reader"},
                                  {4, 4, 3, "", -1, "trainer"}},
                                 4);
  ASSERT_EQ(places.size(), 4u);
  EXPECT_EQ(places[0], (RoundAssignment{1, 0, 0, 4, 0, 10, 0, 1, 0, 1}));
  EXPECT_EQ(places[1], (RoundAssignment{2, 1, 1, 4, 1, 10, 0, 2, 0, 6}));
  EXPECT_EQ(places[2], (RoundAssignment{3, 2, 2, 4, 3, 10, 0, 3, 0, 3}));
  EXPECT_EQ(places[3], (RoundAssignment{4, 3, 3, 4, 6, 10, 0, 4, 2, 6}));
}

}  // namespace
