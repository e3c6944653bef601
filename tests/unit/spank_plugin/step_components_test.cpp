// The components of ordinary and heterogeneous steps, from lists as the controller has them.
#include "spank_plugin/step_components.h"

#include <map>

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

using Key = std::pair<std::uint32_t, std::optional<std::uint32_t>>;

AskComponent controller(std::map<Key, StepComponent> lists) {
  return [lists](std::uint32_t job, std::optional<std::uint32_t> number) -> Result<StepComponent> {
    const auto found = lists.find({job, number});
    return found == lists.end() ? StepComponent() : found->second;
  };
}

constexpr auto kWhole = std::nullopt;
const EnvMap kOrdinary = {{"SLURM_DISTRIBUTION", "arbitrary"}};
const EnvMap kThreeJobs = {{"SLURM_JOB_ID_HET_GROUP_0", "7"},
                           {"SLURM_JOB_ID_HET_GROUP_1", "8"},
                           {"SLURM_JOB_ID_HET_GROUP_2", "9"}};
const EnvMap kTwoJobsOfSrun = {{"SLURM_JOB_ID_PACK_GROUP_0", "7"},
                               {"SLURM_JOB_ID_PACK_GROUP_1", "8"}};

TEST(EnvironmentHasPlacement, IsFalseForArbitraryDistributionAndSeveralComponents) {
  const StepShape whole{.job_id = 7, .world_size = 3, .component_tasks = 3},
      part{.job_id = 7, .world_size = 3, .component_tasks = 2};
  for (const char* distribution : {"block", "cyclic:cyclic", "plane", ""}) {
    EXPECT_TRUE(environment_has_placement({{"SLURM_DISTRIBUTION", distribution}}, whole))
        << distribution;
    EXPECT_FALSE(environment_has_placement({{"SLURM_DISTRIBUTION", distribution}}, part))
        << distribution;
  }
  EXPECT_TRUE(environment_has_placement({}, whole));
  EXPECT_FALSE(environment_has_placement({{"SLURM_DISTRIBUTION", "arbitrary"}}, whole));
  EXPECT_FALSE(environment_has_placement({{"SLURM_DISTRIBUTION", "arbitrary,Pack"}}, whole));
}

TEST(ComponentsOfStep, AreTheListsOfTheController) {
  const StepComponent kOne{"n1", {0}}, kTwo{"n[1-2]", {1, 0}}, kThree{"n[0-1]", {1, 0, 1}};
  const struct {
    const char* what;
    EnvMap environment;
    StepShape step;
    std::map<Key, StepComponent> lists;
    std::vector<StepComponent> components;
  } kCases[] = {
      {"placed one by one", kOrdinary, {7, 3, 3}, {{{7, kWhole}, kThree}}, {kThree}},
      // 22.05 also returns a list of the whole step: the nodes of all, and each component's ranks
      // counted from 0.
      {"components of an ordinary job",
       kOrdinary,
       {7, 4, 3},
       {{{7, kWhole}, {"n[0-2]", {0, 1, 1, 2}}}, {{7, 0}, kOne}, {{7, 1}, kThree}},
       {kOne, kThree}},
      {"a heterogeneous job",
       kTwoJobsOfSrun,
       {8, 4, 1},
       {{{7, kWhole}, kThree}, {{8, kWhole}, kOne}},
       {kThree, kOne}},
      {"a step that leaves a component out",
       kThreeJobs,
       {9, 3, 2},
       {{{7, kWhole}, kOne}, {{9, kWhole}, kTwo}},
       {kOne, kTwo}},
      {"one component of three", kThreeJobs, {8, 2, 2}, {{{8, kWhole}, kTwo}}, {kTwo}},
      {"variables inherited from another job",
       kThreeJobs,
       {5, 2, 2},
       {{{5, kWhole}, kTwo}, {{7, kWhole}, kOne}},
       {kTwo}},
      {"the first component has ended", kTwoJobsOfSrun, {8, 4, 1}, {{{8, kWhole}, kOne}}, {}},
  };
  for (const auto& test : kCases) {
    const auto components = components_of_step(test.environment, test.step, controller(test.lists));
    ASSERT_TRUE(components) << test.what << ": " << components.error().message;
    EXPECT_EQ(*components, test.components) << test.what;
  }
}

TEST(ComponentsOfStep, AnErrorNamesTheReason) {
  const auto unreachable = [](std::uint32_t,
                              std::optional<std::uint32_t>) -> Result<StepComponent> {
    return Error{"Connection refused"};
  };
  const auto failed = components_of_step(kOrdinary, {7, 3, 3}, unreachable);
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().message.find("Connection refused: give ranks=block"), std::string::npos)
      << failed.error().message;
  EXPECT_FALSE(
      components_of_step(kOrdinary, {7, 3, 3}, controller({{{7, kWhole}, {"n0", {0, 0, 0, 0}}}})));
}

}  // namespace
}  // namespace torchbridge
