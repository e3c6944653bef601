#include "bridge/supervision/worker_environment.h"

#include <csignal>

#include <gtest/gtest.h>

using namespace torchbridge;

namespace {

AttemptFacts facts_of(int workers) {
  AttemptFacts facts;
  WorkerRanks& at = facts.ranks;
  facts.workers = at.local_world_size = at.world_size = at.role_world_size = workers;
  facts.master = {"127.0.0.1", 40000};
  facts.run_id = "none";
  facts.restart_count = 1;
  facts.max_restarts = 3;
  return facts;
}

TEST(WorkerEnvironment, HasNoTokenOfTheRun) {
  const EnvMap worker =
      worker_environment({{"TORCHBRIDGE_RDZV_TOKEN", "secret"}}, facts_of(2), {}, 0, "");
  EXPECT_FALSE(worker.has("TORCHBRIDGE_RDZV_TOKEN"));
}

TEST(WorkerEnvironment, HasTorchrunsVariables) {
  RunOptions options;
  options.signals_to_handle = {SIGTERM, SIGINT};
  const EnvMap worker =
      worker_environment({{"HOME", "/root"}}, facts_of(2), options, 1, "/log/error.json");
  const EnvMap expected = {{"HOME", "/root"},
                           {"RANK", "1"},
                           {"LOCAL_RANK", "1"},
                           {"WORLD_SIZE", "2"},
                           {"LOCAL_WORLD_SIZE", "2"},
                           {"GROUP_RANK", "0"},
                           {"GROUP_WORLD_SIZE", "1"},
                           {"ROLE_RANK", "1"},
                           {"ROLE_WORLD_SIZE", "2"},
                           {"ROLE_NAME", "default"},
                           {"MASTER_ADDR", "127.0.0.1"},
                           {"MASTER_PORT", "40000"},
                           {"TORCHELASTIC_RESTART_COUNT", "1"},
                           {"TORCHELASTIC_MAX_RESTARTS", "3"},
                           {"TORCHELASTIC_RUN_ID", "none"},
                           {"TORCHELASTIC_USE_AGENT_STORE", "False"},
                           {"TORCHELASTIC_ERROR_FILE", "/log/error.json"},
                           {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT"},
                           {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
                           {"OMP_NUM_THREADS", "1"}};
  EXPECT_TRUE(std::equal(worker.begin(), worker.end(), expected.begin(), expected.end()));
}

TEST(PreloadEnvironment, HasWhatAllWorkersHaveInAllAttempts) {
  const EnvMap agent = {
      {"HOME", "/root"}, {"RANK", "7"}, {"MASTER_PORT", "1"}, {"TORCHBRIDGE_LISTEN_FD", "5"}};
  const EnvMap common = preload_environment(agent, {}, 2);
  const EnvMap worker = worker_environment(agent, facts_of(2), {}, 1, "/log/error.json");
  for (const auto& [name, value] : common) EXPECT_EQ(worker.get(name), value) << name;
  EXPECT_TRUE(common.has("HOME") && common.has("OMP_NUM_THREADS") &&
              common.has("TORCH_NCCL_ASYNC_ERROR_HANDLING"));
  for (const auto name : {"RANK", "MASTER_PORT", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT",
                          "TORCHBRIDGE_LISTEN_FD"}) {
    EXPECT_FALSE(common.has(name)) << name;
  }
  EXPECT_FALSE(preload_environment(agent, {}, 1).has("OMP_NUM_THREADS"));
  const EnvMap empty = preload_environment({{"OMP_NUM_THREADS", ""}}, {}, 2);  // as not set
  EXPECT_EQ(empty.get("OMP_NUM_THREADS"), "1");
}

TEST(WorkerEnvironment, HasTheRankAmongTheWorkersOfTheRole) {
  AttemptFacts facts = facts_of(2);
  facts.ranks.first_rank = 3;
  facts.ranks.world_size = 9;
  facts.ranks.first_role_rank = 1;
  facts.ranks.role_world_size = 4;
  RunOptions options;
  options.role = "reader";
  const EnvMap worker = worker_environment({}, facts, options, 1, "");
  EXPECT_EQ(worker.get("RANK"), "4");
  EXPECT_EQ(worker.get("ROLE_NAME"), "reader");
  EXPECT_EQ(worker.get("ROLE_RANK"), "2");
  EXPECT_EQ(worker.get("ROLE_WORLD_SIZE"), "4");
}

TEST(WorkerEnvironment, KeepsWhatTheUserSet) {
  const EnvMap environment = {{"OMP_NUM_THREADS", "4"}, {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"}};
  const EnvMap worker = worker_environment(environment, facts_of(2), {}, 0, "");
  EXPECT_EQ(worker.get("OMP_NUM_THREADS"), "4");
  EXPECT_EQ(worker.get("TORCH_NCCL_ASYNC_ERROR_HANDLING"), "0");
}

TEST(WorkerEnvironment, LeavesTheThreadsOfASingleWorkerAlone) {
  EXPECT_FALSE(worker_environment({}, facts_of(1), {}, 0, "").has("OMP_NUM_THREADS"));
}

TEST(WorkerEnvironment, GivesAVirtualLocalRankItsDevice) {
  RunOptions options;
  options.has_virtual_local_rank = true;
  const EnvMap of_list =
      worker_environment({{"CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b"}}, facts_of(2), options, 1, "");
  EXPECT_EQ(of_list.get("LOCAL_RANK"), "0");
  EXPECT_EQ(of_list.get("CUDA_VISIBLE_DEVICES"), "GPU-b");
  EXPECT_EQ(worker_environment({}, facts_of(2), options, 1, "").get("CUDA_VISIBLE_DEVICES"), "1");
  EXPECT_TRUE(check_virtual_devices({{"CUDA_VISIBLE_DEVICES", "0,1"}}, options, 2));
  const auto checked = check_virtual_devices({{"CUDA_VISIBLE_DEVICES", "0"}}, options, 2);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().message,
            "--virtual-local-rank: CUDA_VISIBLE_DEVICES='0' has 1 devices for 2 workers");
}

TEST(WorkerEnvironment, TakesTheDevicesOfHipWhereThatVariableIsSet) {
  RunOptions options;
  options.has_virtual_local_rank = true;
  const EnvMap amd = {{"CUDA_VISIBLE_DEVICES", "0,1"}, {"HIP_VISIBLE_DEVICES", "4,5"}};
  const EnvMap worker = worker_environment(amd, facts_of(2), options, 1, "");
  EXPECT_EQ(worker.get("HIP_VISIBLE_DEVICES"), "5");
  EXPECT_EQ(worker.get("CUDA_VISIBLE_DEVICES"), "5");
  const EnvMap empty = {{"CUDA_VISIBLE_DEVICES", "0,1"}, {"HIP_VISIBLE_DEVICES", ""}};
  EXPECT_EQ(worker_environment(empty, facts_of(2), options, 1, "").get("CUDA_VISIBLE_DEVICES"),
            "1");
  EXPECT_EQ(worker_environment(empty, facts_of(2), options, 1, "").get("HIP_VISIBLE_DEVICES"), "");
  const auto checked = check_virtual_devices({{"HIP_VISIBLE_DEVICES", "4"}}, options, 2);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().message,
            "--virtual-local-rank: HIP_VISIBLE_DEVICES='4' has 1 devices for 2 workers");
}

}  // namespace
