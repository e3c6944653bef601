// What the controller's lists make of ordinary and heterogeneous steps.
#include "spank_plugin/placement.h"

#include <map>

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

using Key = std::pair<std::uint32_t, std::optional<std::uint32_t>>;

AskComponent controller(std::map<Key, Component> lists) {
  return [lists](std::uint32_t job, std::optional<std::uint32_t> number) -> Result<Component> {
    const auto found = lists.find({job, number});
    return found == lists.end() ? Component() : found->second;
  };
}

constexpr auto kWhole = std::nullopt;
const EnvMap kOrdinary = {{"SLURM_DISTRIBUTION", "arbitrary"}};
const EnvMap kThreeJobs = {{"SLURM_JOB_ID_HET_GROUP_0", "7"}, {"SLURM_JOB_ID_HET_GROUP_1", "8"}, {"SLURM_JOB_ID_HET_GROUP_2", "9"}};
const EnvMap kTwoJobsOfSrun = {{"SLURM_JOB_ID_PACK_GROUP_0", "7"}, {"SLURM_JOB_ID_PACK_GROUP_1", "8"}};

TEST(EnvironmentTellsPlacement, UnlessItIsArbitraryOrThereAreSeveralComponents) {
  const StepShape whole{.job_id = 7, .world_size = 3, .component_tasks = 3}, part{.job_id = 7, .world_size = 3, .component_tasks = 2};
  for (const char* distribution : {"block", "cyclic:cyclic", "plane", ""}) {
    EXPECT_TRUE(environment_tells_placement({{"SLURM_DISTRIBUTION", distribution}}, whole)) << distribution;
    EXPECT_FALSE(environment_tells_placement({{"SLURM_DISTRIBUTION", distribution}}, part)) << distribution;
  }
  EXPECT_TRUE(environment_tells_placement({}, whole));
  EXPECT_FALSE(environment_tells_placement({{"SLURM_DISTRIBUTION", "arbitrary"}}, whole));
  EXPECT_FALSE(environment_tells_placement({{"SLURM_DISTRIBUTION", "arbitrary,Pack"}}, whole));
}

TEST(PlacementOfStep, IsMadeOfTheListsOfItsComponents) {
  const struct {
    const char* what;
    EnvMap environment;
    StepShape step;
    std::map<Key, Component> lists;
    std::vector<std::string> node_of_rank;
  } kCases[] = {
      {"placed one by one", kOrdinary, {7, 3, 3}, {{{7, kWhole}, {{"n0", {1}}, {"n1", {0, 2}}}}}, {"n1", "n0", "n1"}},
      {"components of an ordinary job",
       kOrdinary,
       {7, 4, 3},
       // 22.05 also answers for the whole, with the nodes of all and the ranks of each component counted from 0.
       {{{7, kWhole}, {{"n0", {0}}, {"n1", {0, 2}}, {"n2", {1}}}}, {{7, 0}, {{"n2", {0}}}}, {{7, 1}, {{"n0", {0, 2}}, {"n1", {1}}}}},
       {"n2", "n0", "n1", "n0"}},
      {"a heterogeneous job", kTwoJobsOfSrun, {8, 4, 1}, {{{7, kWhole}, {{"n1", {1}}, {"n2", {0, 2}}}}, {{8, kWhole}, {{"n0", {0}}}}}, {"n2", "n1", "n2", "n0"}},
      {"a step that leaves a component out", kThreeJobs, {9, 3, 2}, {{{7, kWhole}, {{"n0", {0}}}}, {{9, kWhole}, {{"n1", {1}}, {"n2", {0}}}}}, {"n0", "n2", "n1"}},
      {"one component of three", kThreeJobs, {8, 2, 2}, {{{8, kWhole}, {{"n0", {1}}, {"n1", {0}}}}}, {"n1", "n0"}},
      {"variables inherited from another job", kThreeJobs, {5, 2, 2}, {{{5, kWhole}, {{"n0", {1}}, {"n1", {0}}}}, {{7, kWhole}, {{"n0", {0, 1}}}}}, {"n1", "n0"}},
      {"the first component has ended", kTwoJobsOfSrun, {8, 4, 1}, {{{8, kWhole}, {{"n0", {0}}}}}, {}},
  };
  for (const auto& test : kCases) {
    const auto nodes = placement_of_step(test.environment, test.step, controller(test.lists));
    ASSERT_TRUE(nodes) << test.what << ": " << nodes.error().message;
    EXPECT_EQ(*nodes, test.node_of_rank) << test.what;
  }
}

TEST(PlacementOfStep, RefusesListsThatDoNotFit) {
  const Component kWrong[] = {{{"a", {0, 1, 2, 3}}},
                              {{"a", {0}}, {"b", {0}}, {"c", {1}}},
                              {{"a", {0}}, {"b", {1}}, {"c", {3}}},
                              {{"a", {0, 1, 2}}, {"b", {}}},
                              {{"a", {-1}}, {"b", {0, 1}}},
                              {{"", {0, 1, 2}}}};
  for (const auto& wrong : kWrong) {
    EXPECT_FALSE(placement_of_step(kOrdinary, {7, 3, 3}, controller({{{7, kWhole}, wrong}})));
  }
}

TEST(PlacementOfStep, SaysWhyTheControllerDidNotAnswer) {
  const auto silent = [](std::uint32_t, std::optional<std::uint32_t>) -> Result<Component> { return Error{"Connection refused"}; };
  const auto nodes = placement_of_step(kOrdinary, {7, 3, 3}, silent);
  ASSERT_FALSE(nodes);
  EXPECT_NE(nodes.error().message.find("Connection refused: give ranks=block"), std::string::npos) << nodes.error().message;
}

TEST(NumbersOf, AreThoseOfTheList) {
  const auto numbers = numbers_of({"n2", "n0", "n2"}, {"n0", "n1", "n2"});
  ASSERT_TRUE(numbers) << numbers.error().message;
  EXPECT_EQ(*numbers, (std::vector<int>{2, 0, 2}));
  const auto unknown = numbers_of({"n2", "n7"}, {"n0", "n1", "n2"});
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("names the node n7"), std::string::npos) << unknown.error().message;
}

}  // namespace
}  // namespace torchbridge
