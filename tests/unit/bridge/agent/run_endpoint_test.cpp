#include "bridge/agent/run_endpoint.h"

#include <gtest/gtest.h>

#include "tests/support/free_port.h"

using namespace torchbridge;

namespace {

TEST(LaunchedTask, IsReadFromTheLaunchersVariables) {
  const EnvMap slurm = {{"SLURM_JOB_ID", "7"},         {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"},
                        {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_NODEID", "0"},  {"SLURM_LOCALID", "0"},
                        {"SLURM_STEP_NODELIST", "n1"}, {"SLURM_GTIDS", "0"},   {"SLURM_STEP_TASKS_PER_NODE", "1"}};
  const auto tasks = launched_task(slurm);
  ASSERT_TRUE(tasks) << tasks.error().message;
  EXPECT_EQ(tasks->count, 1);
  EXPECT_EQ(launched_task({})->count, 0);
}

TEST(SeveralAgents, AreThoseOfTheOptionsOrOfTheLauncher) {
  RunOptions options;
  EXPECT_FALSE(*has_several_agents(options, {}));
  EXPECT_FALSE(*has_several_agents(options, {0, 1}));
  EXPECT_TRUE(*has_several_agents(options, {0, 4}));
  options.min_nodes = options.max_nodes = 1;
  EXPECT_FALSE(*has_several_agents(options, {0, 1}));
  EXPECT_FALSE(has_several_agents(options, {0, 4}));
  EXPECT_FALSE(has_several_agents(options, {0, 4}).error().reported_elsewhere);
  EXPECT_TRUE(has_several_agents(options, {1, 4}).error().reported_elsewhere);
  options.max_nodes = 2;
  EXPECT_TRUE(*has_several_agents(options, {}));
  options.is_standalone = true;
  EXPECT_FALSE(*has_several_agents(options, {0, 4}));
}

RunOptions nodes(int least, int most, const std::string& backend, const std::string& endpoint) {
  RunOptions options;
  options.min_nodes = least;
  options.max_nodes = most;
  options.rdzv_backend = backend;
  options.rdzv_endpoint = endpoint;
  return options;
}

TEST(RunEndpoint, OfC10dIsHeldByTheFirstThatCanListen) {
  const std::string endpoint = "127.0.0.1:" + std::to_string(free_port());
  const auto first = find_run_endpoint(nodes(2, 3, "c10d", endpoint), {}, {});
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_TRUE(first->listener.open());
  EXPECT_EQ(first->shape, (RunShape{2, 3, 3, 0}));
  EXPECT_EQ(first->run_id, "none");
  const auto second = find_run_endpoint(nodes(2, 3, "c10d", endpoint), {}, {});
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_FALSE(second->listener.open());
  EXPECT_EQ(second->coordinator, first->coordinator);
}

TEST(RunEndpoint, HasTorchrunsPorts) {
  auto c10d = nodes(2, 2, "c10d", "192.0.2.1");
  EXPECT_EQ(find_run_endpoint(c10d, {}, {})->coordinator, (Endpoint{"192.0.2.1", 29400}));
  auto fixed = nodes(2, 2, "static", "");
  fixed.master_addr = "192.0.2.1";
  fixed.node_rank = 1;
  EXPECT_EQ(find_run_endpoint(fixed, {}, {})->coordinator, (Endpoint{"192.0.2.1", 29500}));
  EXPECT_EQ(find_run_endpoint(fixed, {}, {})->order, 1);
}

TEST(RunEndpoint, NamesOptionsThatContradictEachOther) {
  const auto error_of = [](const RunOptions& options) {
    const auto endpoint = find_run_endpoint(options, {}, {});
    return endpoint ? "" : endpoint.error().message;
  };
  auto options = nodes(2, 4, "static", "127.0.0.1");
  EXPECT_EQ(error_of(options), "--nnodes MIN:MAX needs --rdzv-backend c10d: with static the number of nodes is fixed");
  options = nodes(4, 4, "static", "127.0.0.1");
  options.node_rank = 4;
  EXPECT_EQ(error_of(options), "--node-rank 4: expected a number below 4 (--nnodes)");
  options = nodes(2, 4, "c10d", "127.0.0.1");
  options.active_nodes = 5;
  EXPECT_EQ(error_of(options), "--active 5: expected a number from 2 to 4 (--nnodes)");
  options = nodes(2, 2, "static", "192.0.2.1");  // of documentation: no interface here has it
  EXPECT_NE(error_of(options).find("192.0.2.1 is not an address of "), std::string::npos);
}

}  // namespace
