// What `verbose` says of a placement that is not torchrun's.
#include <torchbridge/task/task_environment.h>

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

struct Place {
  int rank, node, local_rank;
  std::vector<int> ranks_here;
};

// The notes of a task in a step of two nodes that hold 3 and 1 tasks.
std::vector<std::string> notes(const Place& place, Placement placement, const char* list) {
  LaunchFacts facts;
  facts.launcher = "slurm";
  facts.job_id = "5";
  facts.step_id = "0";
  facts.world_size = 4;
  facts.nodes = {"n0", "n1"};
  facts.tasks_per_node = {3, 1};
  facts.placement = placement;
  facts.rank = place.rank;
  facts.node_rank = place.node;
  facts.local_rank = place.local_rank;
  facts.ranks_here = place.ranks_here;
  facts.local_size = static_cast<int>(place.ranks_here.size());
  const EnvMap environment = {{"TORCHELASTIC_ERROR_FILE", "none"}};
  const Options options = *parse_options(list);
  const auto plan = plan_step_at({"10.0.0.1", 29500}, facts, environment, options);
  return task_environment(*plan, environment, options, Socket(), {})->notes;
}

TEST(Verbose, SaysOnceOnEachNodeThatRankLessLocalRankIsNotItsBase) {
  const std::string advice = ": programs that build device meshes node by node need ranks=block";
  const std::string on_first = "node 0: RANK - LOCAL_RANK is 0 to 1, not always the node's base 0" + advice;
  const std::string on_second = "node 1: RANK - LOCAL_RANK is 1, not the node's base 3" + advice;
  const auto first = notes({0, 0, 0, {0, 2, 3}}, Placement::kCyclic, "verbose");
  ASSERT_EQ(first.size(), 2u);
  EXPECT_TRUE(first[0].starts_with("4 ranks on 2 nodes (3,1), MASTER_ADDR=10.0.0.1 MASTER_PORT=29500, run slurm-5.0")) << first[0];
  EXPECT_EQ(first[1], on_first);
  EXPECT_EQ(notes({2, 0, 1, {0, 2, 3}}, Placement::kCyclic, "verbose"), std::vector<std::string>());
  EXPECT_EQ(notes({1, 1, 0, {1}}, Placement::kCyclic, "verbose"), std::vector<std::string>{on_second});
}

TEST(Verbose, SaysNothingOfTorchrunsOwnNumbering) {
  EXPECT_EQ(notes({0, 0, 0, {0, 1, 2}}, Placement::kBlock, "verbose").size(), 1u);
  EXPECT_EQ(notes({3, 1, 0, {3}}, Placement::kBlock, "verbose").size(), 0u);
  EXPECT_EQ(notes({0, 0, 0, {0, 2, 3}}, Placement::kCyclic, "verbose,ranks=block").size(), 1u);
  EXPECT_EQ(notes({1, 1, 0, {1}}, Placement::kCyclic, "verbose,ranks=block").size(), 0u);
}

}  // namespace
}  // namespace torchbridge
