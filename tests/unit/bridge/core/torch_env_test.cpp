#include "bridge/core/torch_env.h"

#include <map>

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

const EnvMap kComplete = {{"RANK", "3"},
                          {"WORLD_SIZE", "8"},
                          {"LOCAL_RANK", "1"},
                          {"LOCAL_WORLD_SIZE", "2"},
                          {"GROUP_RANK", "1"},
                          {"GROUP_WORLD_SIZE", "4"},
                          {"MASTER_ADDR", "n0"},
                          {"MASTER_PORT", "29500"},
                          {"TORCHELASTIC_RUN_ID", "abc"},
                          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                          {"TORCHELASTIC_RESTART_COUNT", "2"},
                          {"TORCHELASTIC_MAX_RESTARTS", "3"}};

EnvMap with(EnvMap map, const char* name, const char* value) {
  map.set(name, value);
  return map;
}

TEST(TorchEnv, ReadsWhatTorchrunSets) {
  const auto env = torch_env_from(kComplete);
  ASSERT_TRUE(env) << env.error().message;
  EXPECT_EQ(env->layout, (Layout{.rank = 3,
                                 .world_size = 8,
                                 .local_rank = 1,
                                 .local_world_size = 2,
                                 .node_rank = 1,
                                 .node_count = 4}));
  EXPECT_EQ(env->master, (Endpoint{"n0", 29500}));
  EXPECT_EQ(env->run_id, "abc");
  EXPECT_EQ(env->restart_count, 2);
  EXPECT_TRUE(env->use_agent_store);
}

TEST(TorchEnv, TakesFourVariablesAsOneNode) {
  const auto env = torch_env_from(
      {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1"}});
  ASSERT_TRUE(env) << env.error().message;
  EXPECT_EQ(env->layout, (Layout{.rank = 1,
                                 .world_size = 2,
                                 .local_rank = 1,
                                 .local_world_size = 2,
                                 .node_rank = 0,
                                 .node_count = 1}));
  EXPECT_FALSE(env->use_agent_store);
}

TEST(TorchEnv, NumbersLocalRanksNodeByNodeWhereTheyAreMissing) {
  EnvMap by_hand = {
      {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "2"}, {"MASTER_ADDR", "n0"}, {"MASTER_PORT", "1"}};
  for (int rank : {0, 1, 2, 3}) {
    by_hand.set("RANK", std::to_string(rank));
    const auto env = torch_env_from(by_hand);
    ASSERT_TRUE(env) << env.error().message;
    EXPECT_EQ(env->layout.local_rank, rank % 2);
    EXPECT_EQ(env->layout.local_world_size, 2);
  }
}

TEST(TorchEnv, WritesWhatItReads) {
  const auto env = torch_env_from(kComplete);
  EnvMap written;
  for (const auto& [name, value] : variables_of(*env)) written.set(name, value);
  for (const auto& [name, value] : kComplete) EXPECT_EQ(written.get(name), value) << name;
  EXPECT_EQ(written.get("ROLE_RANK"), "3");
  EXPECT_EQ(written.get("ROLE_WORLD_SIZE"), "8");
  EXPECT_EQ(written.get("ROLE_NAME"), "default");
  EXPECT_EQ(written.get("TORCH_NCCL_ASYNC_ERROR_HANDLING"), "1");
}

TEST(TorchEnv, NamesWhatIsMissingOrContradicts) {
  const struct {
    EnvMap environment;
    const char* message;
  } kCases[] = {
      {{{"RANK", "0"}},
       "WORLD_SIZE is not set: set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or none of them"},
      {{{"WORLD_SIZE", "2"}},
       "RANK is not set: set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or none of them"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}},
       "MASTER_ADDR is not set: set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or none of "
       "them"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", ""}, {"MASTER_PORT", "1"}},
       "MASTER_ADDR is empty: set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or none of them"},
      {{{"RANK", ""}},
       "RANK is empty: set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or none of them"},
      {{{"RANK", ""}, {"WORLD_SIZE", ""}},
       "WORLD_SIZE is empty: set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or none of them"},
      {with(kComplete, "MASTER_ADDR", "n0:29500"),
       "MASTER_ADDR='n0:29500': expected a host name or an address, without a port"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}},
       "MASTER_PORT is not set: set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or none of "
       "them"},
      {with(kComplete, "RANK", "8"), "RANK='8': expected an integer from 0 to 7 (WORLD_SIZE='8')"},
      {with(kComplete, "WORLD_SIZE", "0"),
       "WORLD_SIZE='0': expected an integer from 1 to 10000000"},
      {with(kComplete, "MASTER_PORT", "65536"),
       "MASTER_PORT='65536': expected an integer from 1 to 65535"},
      {with(kComplete, "LOCAL_RANK", "2"),
       "LOCAL_RANK='2': expected less than LOCAL_WORLD_SIZE='2'"},
      {with(kComplete, "GROUP_RANK", "4"),
       "GROUP_RANK='4': expected less than GROUP_WORLD_SIZE='4'"},
      {with(kComplete, "LOCAL_WORLD_SIZE", "9"),
       "LOCAL_WORLD_SIZE='9': expected an integer from 1 to 8"},
  };
  for (const auto& test : kCases) {
    const auto env = torch_env_from(test.environment);
    ASSERT_FALSE(env) << test.message;
    EXPECT_EQ(env.error().message, test.message);
  }
}

// Other ranks may have right values: the rank with the wrong one reports it.
TEST(TorchEnv, AWrongValueOfOneRankIsAnErrorOfThisProcess) {
  for (const char* name : {"RANK", "LOCAL_RANK", "GROUP_RANK", "LOCAL_WORLD_SIZE"}) {
    const auto env = torch_env_from(with(kComplete, name, "9"));
    ASSERT_FALSE(env) << name;
    EXPECT_TRUE(env.error().only_here) << name;
  }
  const auto env = torch_env_from(with(kComplete, "MASTER_PORT", "65536"));
  ASSERT_FALSE(env);
  EXPECT_FALSE(env.error().only_here);
}

// The other nodes of the step have the plugin, and no error.
TEST(TorchEnv, OfANodeWithoutThePluginIsAnErrorThatThisNodeReports) {
  const EnvMap none = {{"SLURMD_NODENAME", "n1"}, {kStepRequestVariable, "2 0 - "}};
  const EnvMap all = with(with(none, "RANK", "a sentence"), "WORLD_SIZE", "a sentence");
  const EnvMap own = with(kComplete, kStepRequestVariable, "2 0 - ");
  // None with --export=NONE.
  for (const auto& environment : {all, none, with(own, "WORLD_SIZE", "a sentence")}) {
    const auto env = torch_env_from(environment);
    ASSERT_FALSE(env);
    EXPECT_TRUE(env.error().message.starts_with(
        "torch_env.so is not loaded on this node: add it to plugstack.conf of "))
        << env.error().message;
    EXPECT_TRUE(env.error().only_here);
  }
  EXPECT_TRUE(torch_env_from(own)) << "the user's own, complete";
}

TEST(TorchEnv, NumbersRanksNodeByNodeWithBlock) {
  LaunchFacts facts;
  facts.launcher = "slurm";
  facts.job_id = "9";
  facts.step_id = "1";
  facts.rank = 1;
  facts.world_size = 4;
  const TaskMap cyclic = TaskMap::plane({2, 2}, 1);
  EXPECT_EQ(torch_env_of(facts, cyclic, {}, {}).layout.rank, 1);
  EXPECT_EQ(torch_env_of(facts, cyclic, *parse_options("ranks=block"), {}).layout.rank, 2);
}

TEST(TorchEnv, GivesEachRequeueARunIdOfItsOwn) {
  LaunchFacts facts;
  facts.launcher = "slurm";
  facts.job_id = "9";
  facts.step_id = "1";
  const TaskMap map = TaskMap::block({1});
  EXPECT_EQ(torch_env_of(facts, map, {}, {}).run_id, "slurm-9.1");
  facts.restart_count = 2;
  EXPECT_EQ(torch_env_of(facts, map, {}, {}).run_id, "slurm-9.1-r2");
  EXPECT_EQ(torch_env_of(facts, map, {}, {}).restart_count, 2);
}

}  // namespace
}  // namespace torchbridge
