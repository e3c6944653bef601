#include "bridge/binding/closest_gpus.h"

#include <algorithm>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

using Table = std::vector<std::vector<int>>;
using Gpus = std::vector<std::size_t>;

TEST(ClosestGpus, GivesEachTaskItsNearest) {
  const struct {
    Table distances;
    Gpus gpus;
  } kCases[] = {
      {{}, {}},
      {{{20, 10}}, {1}},
      {{{10, 20}, {20, 10}}, {0, 1}},
      {{{20, 10}, {10, 20}}, {1, 0}},
      {{{10, 10}, {10, 10}}, {0, 1}},                  // nothing to choose: in order
      {{{10, 10, 10, 10}, {10, 10, 10, 10}}, {0, 1}},  // more GPUs than tasks: the first ones
      {{{10, 10}, {10, 20}}, {1, 0}},                  // the first can do with either
      {{{21, 21, 10, 10}, {21, 21, 10, 10}, {10, 10, 21, 21}, {10, 10, 21, 21}}, {2, 3, 0, 1}},
      {{{10, 21}, {10, 21}}, {0, 1}},  // one of them must go far
      {{{10, 10, 21}, {10, 10, 21}, {10, 10, 21}}, {0, 1, 2}},
  };
  for (const auto& test : kCases) EXPECT_EQ(closest_gpus(test.distances), test.gpus);
}

long sum_of(const Table& distances, const Gpus& gpus) {
  long sum = 0;
  for (std::size_t task = 0; task < gpus.size(); ++task) sum += distances[task][gpus[task]];
  return sum;
}

TEST(ClosestGpus, AreAssignedSoThatNoAssignmentIsNearer) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const std::size_t gpus = 1 + random() % 6, tasks = 1 + random() % gpus;
    Table distances(tasks, std::vector<int>(gpus));
    for (auto& row : distances)
      std::generate(row.begin(), row.end(),
                    [&] { return 10 + static_cast<int>(random() % 3) * 11; });
    const Gpus found = closest_gpus(distances);
    Gpus distinct = found;
    std::sort(distinct.begin(), distinct.end());
    ASSERT_EQ(std::unique(distinct.begin(), distinct.end()), distinct.end());

    Gpus all(gpus);
    std::iota(all.begin(), all.end(), std::size_t{0});
    long least = sum_of(distances, found);
    do {
      least = std::min(
          least,
          sum_of(distances, Gpus(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(tasks))));
    } while (std::next_permutation(all.begin(), all.end()));
    EXPECT_EQ(sum_of(distances, found), least) << "round " << round;
  }
}

using Sets = std::vector<CpuSet>;

Sets second_of_two(const char* type, const char* list, const CpuSet& own) {
  EnvMap environment;
  if (type != nullptr) environment.set("SLURM_CPU_BIND_TYPE", type);
  if (list != nullptr) environment.set("SLURM_CPU_BIND_LIST", list);
  return slurm_task_cpus(environment,
                         {.rank = 1, .world_size = 2, .local_rank = 1, .local_world_size = 2}, own);
}

TEST(SlurmTaskCpus, FollowsSlurmsCpuBinding) {
  EXPECT_EQ(second_of_two("mask_cpu:", "0x1,0x2", {1}), (Sets{{0}, {1}}));
  // As --cpu-bind=mask_cpu is passed on.
  EXPECT_EQ(second_of_two("mask_cpu:", "2,1", {0}), (Sets{{1}, {0}}));
  EXPECT_EQ(second_of_two("mask_cpu:", "0x3", {0, 1}), (Sets{{0, 1}, {0, 1}}));  // srun repeats it
  EXPECT_EQ(second_of_two("mask_cpu:", "0x1,0xe", {1}), (Sets{{0}, {1, 2, 3}}));
  EXPECT_EQ(second_of_two("map_cpu:", "1,0", {0}), (Sets{{1}, {0}}));
  EXPECT_EQ(second_of_two("none", "", {0, 1}), (Sets{{0, 1}, {0, 1}}));
  // TaskPlugin=task/none.
  EXPECT_EQ(second_of_two(nullptr, nullptr, {0, 1}), (Sets{{0, 1}, {0, 1}}));
}

TEST(SlurmTaskCpus, IsEmptyWhereSlurmsBindingIsNotKnown) {
  EXPECT_EQ(second_of_two("rank", "", {1}), Sets{});
  EXPECT_EQ(second_of_two("mask_cpu:", "0x1,zz", {1}), Sets{});
  EXPECT_EQ(second_of_two("mask_cpu:", "", {1}), Sets{});
  EXPECT_EQ(second_of_two("map_cpu:", "0,-1", {1}), Sets{});
  EXPECT_EQ(second_of_two("mask_cpu:", "0x1,0x2", {5}), Sets{});  // the list is of something else
  EXPECT_EQ(second_of_two("mask_cpu:", "0x1,0x2", {}), Sets{});
}

}  // namespace
}  // namespace torchbridge
