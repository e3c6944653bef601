#include "trainer_template/runtime/rendezvous/rank_locations.h"

#include <gtest/gtest.h>

namespace torchbridge::train {
namespace {

// Ranks 2 * n and 2 * n + 1 on node n, or, dealt out in turn, n and n + `nodes`.
RankLocation block(int rank) {
  return {rank, rank / 2, rank % 2, 2, "n" + std::to_string(rank / 2)};
}
RankLocation cyclic(int rank, int nodes) {
  return {rank, rank % nodes, rank / nodes, 2, "n" + std::to_string(rank % nodes)};
}

TEST(RankLocations, AMissingRankIsOnTheNodeOfItsNeighbours) {
  EXPECT_EQ(with_nodes({3}, {}, {block(0), block(1), block(2)}), "rank 3 (n1)");
  EXPECT_EQ(with_nodes({1, 3}, {}, {block(0), block(2)}), "ranks 1,3 (n0, n1)");
  EXPECT_EQ(with_nodes({2, 3}, {}, {block(0), block(1)}), "ranks 2,3")
      << "no rank of that node joined";
}

TEST(RankLocations, NoNodeIsNamedWhereRanksAreNotNumberedNodeByNode) {
  EXPECT_EQ(with_nodes({2}, {}, {cyclic(0, 2), cyclic(1, 2), cyclic(3, 2)}), "rank 2");
  // Two nodes with the same host, as in a wrong launch.
  EXPECT_EQ(with_nodes({1}, {}, {{0, 0, 0, 2, "n0"}, {2, 0, 0, 2, "n0"}}), "rank 1");
  // By hand without LOCAL_WORLD_SIZE.
  Launch unknown;
  unknown.is_local_size_known = false;
  EXPECT_EQ(with_nodes({1}, unknown, {{0, 0, 0, 2, "n0"}}), "rank 1");
}

TEST(RankLocations, TheLauncherNamesNodesFromWhichNoRankJoined) {
  Launch launch;
  const LaunchFacts facts{.launcher = "slurm",
                          .world_size = 4,
                          .local_size = 2,
                          .nodes = {"n5", "n7"},
                          .tasks_per_node = {2, 2},
                          .placement = Placement::kBlock};
  launch.plan = StepPlan{
      .facts = facts, .map = *task_map_of(facts), .options = {}, .exported = {}, .env = {}};
  EXPECT_EQ(with_nodes({2, 3}, launch, {block(0)}), "ranks 2,3 (n7)");
  launch.plan.reset();
  launch.matching_facts = facts;
  EXPECT_EQ(with_nodes({2, 3}, launch, {block(0)}), "ranks 2,3 (n7)");
}

TEST(RankLocations, NumberAndHostIdentifyANode) {
  EXPECT_EQ(ranks_by_node({cyclic(0, 2), cyclic(1, 2), cyclic(2, 2), cyclic(3, 2)}),
            (std::vector<std::vector<int>>{{0, 2}, {1, 3}}));
  EXPECT_EQ(ranks_by_node({{0, 0, 0, 1, "a"}, {1, 0, 1, 1, "b"}}),
            (std::vector<std::vector<int>>{{0}, {1}}));
}

}  // namespace
}  // namespace torchbridge::train
