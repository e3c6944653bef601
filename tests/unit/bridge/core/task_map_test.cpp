#include "bridge/core/task_map.h"

#include <chrono>

#include <gtest/gtest.h>

#include "bridge/core/layout.h"

namespace torchbridge {
namespace {

std::vector<int> nodes_of(const TaskMap& map) {
  std::vector<int> nodes;
  for (int rank = 0; rank < map.world_size(); ++rank) nodes.push_back(map.node_of(rank));
  return nodes;
}

LaunchFacts facts_of(int rank, int local_rank, int node, std::vector<int> counts,
                     std::vector<int> ranks_here) {
  LaunchFacts facts;
  facts.launcher = "slurm";
  facts.rank = rank;
  facts.local_rank = local_rank;
  facts.node_rank = node;
  facts.local_size = static_cast<int>(ranks_here.size());
  facts.world_size = 0;
  for (const int count : counts) facts.world_size += count;
  facts.tasks_per_node = std::move(counts);
  facts.ranks_here = std::move(ranks_here);
  facts.placement = Placement::kBlock;
  return facts;
}

TEST(TaskMap, PlacesRanks) {
  EXPECT_EQ(nodes_of(TaskMap::block({5, 1, 1, 1})), (std::vector<int>{0, 0, 0, 0, 0, 1, 2, 3}));
  EXPECT_EQ(nodes_of(TaskMap::plane({2, 2}, 1)), (std::vector<int>{0, 1, 0, 1}));
  EXPECT_EQ(nodes_of(TaskMap::plane({3, 1}, 1)), (std::vector<int>{0, 1, 0, 0}));
  EXPECT_EQ(nodes_of(TaskMap::plane({4, 1, 1}, 2)), (std::vector<int>{0, 0, 1, 2, 0, 0}));
  EXPECT_EQ(nodes_of(TaskMap::from_nodes({1, 0, 1})), (std::vector<int>{1, 0, 1}));
}

// A look at every node in every round would be 10^10 looks.
TEST(TaskMap, PassesOverFullNodesQuickly) {
  std::vector<int> counts(100'000, 1);
  counts[0] = 100'000;
  const auto start = std::chrono::steady_clock::now();
  const TaskMap map = TaskMap::plane(counts, 1);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(4));
  EXPECT_EQ(map.node_of(99'999), 99'999);
  EXPECT_EQ(map.node_of(100'000), 0);
  EXPECT_EQ(map.local_rank_of(199'998), 99'999);
}

TEST(TaskMap, CountsOnUnevenNodes) {
  const TaskMap map = TaskMap::block({5, 1, 1, 1});
  EXPECT_EQ(layout_of(map, 4), (Layout{.rank = 4,
                                       .world_size = 8,
                                       .local_rank = 4,
                                       .local_world_size = 5,
                                       .node_rank = 0,
                                       .node_count = 4}));
  EXPECT_EQ(layout_of(map, 6), (Layout{.rank = 6,
                                       .world_size = 8,
                                       .local_rank = 0,
                                       .local_world_size = 1,
                                       .node_rank = 2,
                                       .node_count = 4}));
  EXPECT_EQ(map.ranks_before(0), 0);
  EXPECT_EQ(map.ranks_before(3), 7);
}

TEST(TaskMap, OfOneNodeKnowsThatNodeOnly) {
  const TaskMap map = TaskMap::of_one_node({1, 2}, 1, {0, 2});
  EXPECT_FALSE(map.complete());
  EXPECT_TRUE(map.knows(2));
  EXPECT_FALSE(map.knows(1));
  EXPECT_EQ(layout_of(map, 2), (Layout{.rank = 2,
                                       .world_size = 3,
                                       .local_rank = 1,
                                       .local_world_size = 2,
                                       .node_rank = 1,
                                       .node_count = 2}));
}

TEST(TaskMapOf, LetsTheRanksOfTheNodeOverruleTheNamedPlacement) {
  // Placed one by one, although `placement` is block.
  LaunchFacts facts = facts_of(2, 1, 1, {1, 2}, {0, 2});
  const auto map = task_map_of(facts);
  ASSERT_TRUE(map) << map.error().message;
  EXPECT_EQ(map->node_of(2), 1);
  EXPECT_FALSE(map->complete());
}

TEST(TaskMapOf, UsesTheNodesOfTheRanks) {
  LaunchFacts facts = facts_of(2, 1, 1, {1, 2}, {0, 2});
  facts.placement = Placement::kUnknown;
  facts.node_of_rank = {1, 0, 1};
  const auto map = task_map_of(facts);
  ASSERT_TRUE(map) << map.error().message;
  EXPECT_TRUE(map->complete());
  EXPECT_EQ(map->node_of(0), 1);
  EXPECT_EQ(map->local_rank_of(2), 1);
  for (const std::vector<int>& wrong :
       {std::vector{0, 1, 0}, {1, 1, 0}, {1, 0, 0}, {2, 0, 2}, {1, 0}}) {
    facts.node_of_rank = wrong;
    EXPECT_FALSE(task_map_of(facts));
  }
}

TEST(TaskMapOf, RejectsContradictions) {
  const struct {
    const char* part_of_message;
    LaunchFacts facts;
  } kCases[] = {
      {"the step has 9 tasks, but its nodes hold 8 tasks",
       [] {
         auto f = facts_of(0, 0, 0, {5, 3}, {0, 1, 2, 3, 4});
         f.world_size = 9;
         return f;
       }()},
      {"the node list names 3 nodes, but task counts are given for 2",
       [] {
         auto f = facts_of(0, 0, 0, {1, 1}, {0});
         f.nodes = {"a", "b", "c"};
         return f;
       }()},
      {"this is node 2, but the step has 2 nodes", facts_of(0, 0, 2, {1, 1}, {0})},
      {"node 0 holds 2 tasks by the counts, but 1 task by the list of its ranks",
       facts_of(0, 0, 0, {2, 1}, {0})},
      {"rank 1 cannot be local rank 0 of node 0", facts_of(1, 0, 0, {2, 1}, {0, 1})},
      {"rank 20 is on this node, but the step has 3 tasks, numbered from 0",
       facts_of(2, 1, 1, {1, 2}, {0, 20})},
      {"rank 0 cannot be local rank 0 of node 0", facts_of(0, 0, 0, {2, 1}, {0, 0})},
      {"the step has 8 tasks, but its nodes hold 4294967304 tasks",  // 8, were it counted in 32
                                                                     // bits
       [] {
         auto f = facts_of(0, 0, 0, {8}, {0});
         f.tasks_per_node.assign(512, 1 << 23);
         f.tasks_per_node.push_back(8);
         return f;
       }()},
  };
  for (const auto& test : kCases) {
    const auto map = task_map_of(test.facts);
    ASSERT_FALSE(map) << test.part_of_message;
    EXPECT_NE(map.error().message.find(test.part_of_message), std::string::npos)
        << map.error().message;
  }
}

TEST(TaskMapOf, RejectsAnExchangeOfAnotherSize) {
  LaunchFacts facts;
  facts.launcher = "openmpi";
  facts.rank = 2;
  facts.world_size = 3;
  facts.node_of_rank = {0, 1};
  const auto map = task_map_of(facts);
  ASSERT_FALSE(map);
  EXPECT_NE(map.error().message.find("the launcher started 3 tasks, but the nodes of 2 are known"),
            std::string::npos)
      << map.error().message;
}

TEST(TaskMapOf, RejectsAnExchangeThatContradictsTheLauncher) {
  LaunchFacts facts;
  facts.launcher = "openmpi";
  facts.rank = 1;
  facts.world_size = 3;
  facts.local_rank = 1;
  facts.local_size = 2;
  facts.node_of_rank = {0, 1, 1};
  const auto map = task_map_of(facts);
  ASSERT_FALSE(map);
  EXPECT_NE(map.error().message.find(
                "rank 1 is local rank 1 of 2 by its variables, but local rank 0 of 2"),
            std::string::npos)
      << map.error().message;
}

}  // namespace
}  // namespace torchbridge
