// What real launchers told their processes (tests/data/environments/record) against where those processes were.
#include <torchbridge/core/launcher.h>
#include <torchbridge/core/layout.h>
#include <torchbridge/core/task_map.h>

#include <gtest/gtest.h>

#include "tests/unit/core/recorded_environment.h"

namespace torchbridge {
namespace {

struct Place {
  int local_rank, local_world_size, node_rank;
};

struct Recording {
  const char* name;
  const char* launcher;
  int node_count;
  std::vector<Place> places;  // by rank
};

const Recording kRecordings[] = {
    {"slurm-22.05-4n8t-uneven", "slurm", 4,
     {{0, 5, 0}, {1, 5, 0}, {2, 5, 0}, {3, 5, 0}, {4, 5, 0}, {0, 1, 1}, {0, 1, 2}, {0, 1, 3}}},
    {"slurm-22.05-2n4t-cyclic", "slurm", 2, {{0, 3, 0}, {0, 1, 1}, {1, 3, 0}, {2, 3, 0}}},
    {"slurm-22.05-3n6t-plane", "slurm", 3, {{0, 4, 0}, {1, 4, 0}, {0, 1, 1}, {0, 1, 2}, {2, 4, 0}, {3, 4, 0}}},
    {"slurm-22.05-2n3t-arbitrary", "slurm", 2, {{0, 2, 1}, {0, 1, 0}, {1, 2, 1}}},
    {"slurm-22.05-1n2t-gres", "slurm", 1, {{0, 2, 0}, {1, 2, 0}}},
    {"slurm-22.05-1n2t-gpus-per-task", "slurm", 1, {{0, 2, 0}, {1, 2, 0}}},
    {"openmpi-4.1-1n4t", "openmpi", 1, {{0, 4, 0}, {1, 4, 0}, {2, 4, 0}, {3, 4, 0}}},
};

TEST(Recorded, EveryRankFindsItsPlace) {
  for (const auto& recording : kRecordings) {
    for (int rank = 0; rank < static_cast<int>(recording.places.size()); ++rank) {
      SCOPED_TRACE(std::string(recording.name) + " rank " + std::to_string(rank));
      const EnvMap environment = recorded_environment(recording.name, rank);
      const Launcher* launcher = innermost_launcher(environment);
      ASSERT_NE(launcher, nullptr);
      EXPECT_STREQ(launcher->name, recording.launcher);
      const auto facts = launcher->read(environment);
      ASSERT_TRUE(facts) << facts.error().message;
      const auto map = task_map_of(*facts);
      ASSERT_TRUE(map) << map.error().message;
      const Place& place = recording.places[rank];
      EXPECT_EQ(layout_of(*map, facts->rank), (Layout{.rank = rank,
                                                      .world_size = static_cast<int>(recording.places.size()),
                                                      .local_rank = place.local_rank,
                                                      .local_world_size = place.local_world_size,
                                                      .node_rank = place.node_rank,
                                                      .node_count = recording.node_count}));
    }
  }
}

TEST(Recorded, OpenMpiOnSeveralNodesNeedsAnExchange) {
  const EnvMap environment = recorded_environment("openmpi-4.1-2n3t", 2);
  const auto facts = innermost_launcher(environment)->read(environment);
  ASSERT_TRUE(facts) << facts.error().message;
  EXPECT_TRUE(facts->needs_node_exchange());
  EXPECT_EQ(facts->local_size, 1);
}

TEST(Recorded, MpirunInsideAStepIsMpi) {
  EnvMap environment = recorded_environment("slurm-22.05-4n8t-uneven", 6);
  for (const auto& [name, value] : recorded_environment("openmpi-4.1-1n4t", 1)) environment.set(name, value);
  EXPECT_STREQ(innermost_launcher(environment)->name, "openmpi");
}

TEST(Recorded, NobodyLaunchedAPlainProcess) { EXPECT_EQ(innermost_launcher({{"SLURM_JOB_ID", "1"}}), nullptr); }

}  // namespace
}  // namespace torchbridge
