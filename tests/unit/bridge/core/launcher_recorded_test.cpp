// The environments of real launchers (tests/data/environments/record), read and compared with the
// layouts that they had.
#include <gtest/gtest.h>

#include "bridge/core/launcher.h"
#include "bridge/core/layout.h"
#include "bridge/core/task_map.h"
#include "tests/support/recorded_environment.h"

namespace torchbridge {
namespace {

struct ExpectedLayout {
  int local_rank, local_world_size, node_rank;
};

struct Recording {
  const char* name;
  const char* launcher;
  int node_count;
  std::vector<ExpectedLayout> layouts;  // by rank
};

const Recording kRecordings[] = {
    {"slurm-22.05-4n8t-uneven",
     "slurm",
     4,
     {{0, 5, 0}, {1, 5, 0}, {2, 5, 0}, {3, 5, 0}, {4, 5, 0}, {0, 1, 1}, {0, 1, 2}, {0, 1, 3}}},
    {"slurm-22.05-2n4t-cyclic", "slurm", 2, {{0, 3, 0}, {0, 1, 1}, {1, 3, 0}, {2, 3, 0}}},
    {"slurm-22.05-3n6t-plane",
     "slurm",
     3,
     {{0, 4, 0}, {1, 4, 0}, {0, 1, 1}, {0, 1, 2}, {2, 4, 0}, {3, 4, 0}}},
    {"slurm-22.05-2n3t-arbitrary", "slurm", 2, {{0, 2, 1}, {0, 1, 0}, {1, 2, 1}}},
    {"slurm-22.05-1n2t-gres", "slurm", 1, {{0, 2, 0}, {1, 2, 0}}},
    {"slurm-22.05-1n2t-gpus-per-task", "slurm", 1, {{0, 2, 0}, {1, 2, 0}}},
    {"slurm-22.05-2n3t-pmi2", "slurm", 2, {{0, 2, 0}, {1, 2, 0}, {0, 1, 1}}},
    {"slurm-22.05-2n3t-pmix", "slurm", 2, {{0, 2, 0}, {1, 2, 0}, {0, 1, 1}}},
    {"openmpi-4.1-1n4t", "openmpi", 1, {{0, 4, 0}, {1, 4, 0}, {2, 4, 0}, {3, 4, 0}}},
    {"openmpi-5.0-1n4t", "openmpi", 1, {{0, 4, 0}, {1, 4, 0}, {2, 4, 0}, {3, 4, 0}}},
    {"mpich-4.0-1n3t", "hydra", 1, {{0, 3, 0}, {1, 3, 0}, {2, 3, 0}}},
    {"mpich-5.0-1n3t", "hydra", 1, {{0, 3, 0}, {1, 3, 0}, {2, 3, 0}}},
    {"intelmpi-2021.18-1n3t", "hydra", 1, {{0, 3, 0}, {1, 3, 0}, {2, 3, 0}}},
};

TEST(Recorded, EveryRankFindsItsLayout) {
  for (const auto& recording : kRecordings) {
    for (int rank = 0; rank < static_cast<int>(recording.layouts.size()); ++rank) {
      SCOPED_TRACE(std::string(recording.name) + " rank " + std::to_string(rank));
      const EnvMap environment = recorded_environment(recording.name, rank);
      const Launcher* launcher = innermost_launcher(environment);
      ASSERT_NE(launcher, nullptr);
      EXPECT_STREQ(launcher->name, recording.launcher);
      const auto facts = launcher->read(environment);
      ASSERT_TRUE(facts) << facts.error().message;
      const auto map = task_map_of(*facts);
      ASSERT_TRUE(map) << map.error().message;
      const ExpectedLayout& expected = recording.layouts[rank];
      EXPECT_EQ(layout_of(*map, facts->rank),
                (Layout{.rank = rank,
                        .world_size = static_cast<int>(recording.layouts.size()),
                        .local_rank = expected.local_rank,
                        .local_world_size = expected.local_world_size,
                        .node_rank = expected.node_rank,
                        .node_count = recording.node_count}));
    }
  }
}

TEST(Recorded, MpirunOnSeveralNodesNeedsAnExchange) {
  const struct {
    const char* name;
    const char* launcher;
  } kCases[] = {
      {"openmpi-4.1-2n3t", "openmpi"},     {"openmpi-5.0-2n3t", "openmpi"},
      {"mpich-4.0-2n3t", "hydra"},         {"mpich-5.0-2n3t", "hydra"},
      {"intelmpi-2021.18-2n3t", "hydra"},  {"slurm-22.05-2n3t-mpirun", "openmpi"},
      {"slurm-22.05-2n3t-hydra", "hydra"},
  };
  for (const auto& test : kCases) {
    for (int rank = 0; rank < 3; ++rank) {
      SCOPED_TRACE(std::string(test.name) + " rank " + std::to_string(rank));
      const EnvMap environment = recorded_environment(test.name, rank);
      const Launcher* launcher = innermost_launcher(environment);
      ASSERT_NE(launcher, nullptr);
      EXPECT_STREQ(launcher->name, test.launcher);
      const auto facts = read_launcher(*launcher, environment);
      ASSERT_TRUE(facts) << facts.error().message;
      EXPECT_TRUE(facts->needs_node_exchange());
      EXPECT_EQ(facts->rank, rank);
      EXPECT_EQ(facts->world_size, 3);
    }
  }
}

TEST(Recorded, RanksOfOneNodeAndJobHaveOneKey) {
  for (const char* name : {"openmpi-4.1-1n4t", "openmpi-5.0-1n4t"}) {
    const auto first = recorded_environment(name, 0), last = recorded_environment(name, 3);
    const auto key = innermost_launcher(first)->read(first)->node_key;
    EXPECT_NE(key, "") << name;
    EXPECT_EQ(key, innermost_launcher(last)->read(last)->node_key) << name;
  }
}

TEST(Recorded, MpirunInsideAStepIsMpi) {
  EnvMap environment = recorded_environment("slurm-22.05-4n8t-uneven", 6);
  for (const auto& [name, value] : recorded_environment("openmpi-4.1-1n4t", 1))
    environment.set(name, value);
  EXPECT_STREQ(innermost_launcher(environment)->name, "openmpi");
}

TEST(Recorded, APlainProcessHasNoLauncher) {
  EXPECT_EQ(innermost_launcher({{"SLURM_JOB_ID", "1"}}), nullptr);
}

}  // namespace
}  // namespace torchbridge
