#include <torchbridge/core/closest_gpus.h>

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
      {{{10, 10}, {10, 10}}, {0, 1}},                      // nothing to choose: in order
      {{{10, 10, 10, 10}, {10, 10, 10, 10}}, {0, 1}},      // more GPUs than tasks: the first ones
      {{{10, 10}, {10, 20}}, {1, 0}},                      // the first can do with either
      {{{21, 21, 10, 10}, {21, 21, 10, 10}, {10, 10, 21, 21}, {10, 10, 21, 21}}, {2, 3, 0, 1}},
      {{{10, 21}, {10, 21}}, {0, 1}},                      // one of them must go far
      {{{10, 10, 21}, {10, 10, 21}, {10, 10, 21}}, {0, 1, 2}},
  };
  for (const auto& test : kCases) EXPECT_EQ(closest_gpus(test.distances), test.gpus);
}

long sum_of(const Table& distances, const Gpus& gpus) {
  long sum = 0;
  for (std::size_t task = 0; task < gpus.size(); ++task) sum += distances[task][gpus[task]];
  return sum;
}

TEST(ClosestGpus, NoAssignmentIsNearer) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const std::size_t gpus = 1 + random() % 6, tasks = 1 + random() % gpus;
    Table distances(tasks, std::vector<int>(gpus));
    for (auto& row : distances) std::generate(row.begin(), row.end(), [&] { return 10 + static_cast<int>(random() % 3) * 11; });
    const Gpus found = closest_gpus(distances);
    Gpus distinct = found;
    std::sort(distinct.begin(), distinct.end());
    ASSERT_EQ(std::unique(distinct.begin(), distinct.end()), distinct.end());

    Gpus all(gpus);
    std::iota(all.begin(), all.end(), std::size_t{0});
    long least = sum_of(distances, found);
    do {
      least = std::min(least, sum_of(distances, Gpus(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(tasks))));
    } while (std::next_permutation(all.begin(), all.end()));
    EXPECT_EQ(sum_of(distances, found), least) << "round " << round;
  }
}

const EnvMap kSrun = {{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}};

std::optional<std::vector<CpuSet>> second_of_two(const char* type, const char* list, CpuSet own, EnvMap environment = kSrun) {
  if (type != nullptr) environment.set("SLURM_CPU_BIND_TYPE", type);
  if (list != nullptr) environment.set("SLURM_CPU_BIND_LIST", list);
  Machine machine;
  machine.cpus = std::move(own);
  return cpus_of_tasks(environment, {.rank = 1, .world_size = 2, .local_rank = 1, .local_world_size = 2}, machine);
}

using Sets = std::vector<CpuSet>;

TEST(CpusOfTasks, FollowsWhatSlurmSays) {
  EXPECT_EQ(second_of_two("mask_cpu:", "0x1,0x2", {1}), (Sets{{0}, {1}}));
  EXPECT_EQ(second_of_two("mask_cpu:", "2,1", {0}), (Sets{{1}, {0}}));         // as --cpu-bind=mask_cpu is passed on
  EXPECT_EQ(second_of_two("mask_cpu:", "0x3", {0, 1}), (Sets{{0, 1}, {0, 1}}));  // srun repeats it
  EXPECT_EQ(second_of_two("map_cpu:", "1,0", {0}), (Sets{{1}, {0}}));
  EXPECT_EQ(second_of_two("none", "", {0, 1}), (Sets{{0, 1}, {0, 1}}));
  EXPECT_EQ(second_of_two(nullptr, nullptr, {0, 1}), (Sets{{0, 1}, {0, 1}}));  // TaskPlugin=task/none
}

TEST(CpusOfTasks, DoesNotGuess) {
  EXPECT_EQ(second_of_two("rank", "", {1}), std::nullopt);
  EXPECT_EQ(second_of_two("mask_cpu:", "0x1,zz", {1}), std::nullopt);
  EXPECT_EQ(second_of_two("mask_cpu:", "", {1}), std::nullopt);
  EXPECT_EQ(second_of_two("mask_cpu:", "0x1,0x2", {5}), std::nullopt);  // the list is of something else
  EXPECT_EQ(second_of_two("mask_cpu:", "0x1,0x2", {}), std::nullopt);
  EXPECT_EQ(second_of_two(nullptr, nullptr, {0, 1}, EnvMap()), std::nullopt);  // no srun
  EnvMap mpirun = kSrun;
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"}) mpirun.set(name, "1");
  EXPECT_EQ(second_of_two("mask_cpu:", "0x1,0x2", {1}, mpirun), std::nullopt);
}

TEST(CpusOfTasks, TakesTheWordOfTheCaller) {
  Machine machine;
  machine.task_cpus = {{3}, {4}};
  EXPECT_EQ(cpus_of_tasks({}, {.world_size = 2, .local_world_size = 2}, machine), machine.task_cpus);
}

}  // namespace
}  // namespace torchbridge
