#include "bridge/agent/run_endpoint.h"

#include <gtest/gtest.h>

#include "bridge/net/address.h"
#include "tests/support/free_port.h"

using namespace torchbridge;

namespace {

TEST(LaunchedTask, IsReadFromTheLaunchersVariables) {
  const EnvMap slurm = {
      {"SLURM_JOB_ID", "7"},         {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"},
      {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_NODEID", "0"},  {"SLURM_LOCALID", "0"},
      {"SLURM_STEP_NODELIST", "n1"}, {"SLURM_GTIDS", "0"},   {"SLURM_STEP_TASKS_PER_NODE", "1"}};
  const auto tasks = launched_task(LaunchOrigin(slurm));
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
}

TEST(SeveralAgents, AreNotThoseOfAShellThatIsOneTaskOfSeveral) {
  RunOptions options;
  EXPECT_FALSE(has_several_agents(options, {0, 4, true}));
  EXPECT_FALSE(*has_several_agents(options, {0, 1, true}));
  options.is_standalone = true;
  EXPECT_FALSE(*has_several_agents(options, {0, 4, true}));
}

RunOptions nodes(int least, int most, RdzvBackend backend, const std::string& endpoint) {
  RunOptions options;
  options.min_nodes = least;
  options.max_nodes = most;
  options.rdzv_backend = backend;
  options.rdzv_endpoint = endpoint;
  if (!endpoint.empty()) options.rdzv_address = *parse_endpoint(endpoint);
  return options;
}

TEST(SeveralAgents, AreAsManyAsTheOptionsAllow) {
  const struct {
    RunOptions options;
    int tasks;
    std::string error;  // empty: none
  } cases[] = {
      {nodes(2, 2, RdzvBackend::kStatic, ""), 0, ""},  // by hand
      {nodes(2, 2, RdzvBackend::kStatic, ""), 2, ""},
      {nodes(2, 4, RdzvBackend::kStatic, ""), 3, ""},
      {nodes(2, 2, RdzvBackend::kStatic, ""), 4,
       "the launcher started 4 tasks, and --nnodes allows at most 2 agents"},
      {nodes(2, 2, RdzvBackend::kC10d, "n0:29400"), 4,
       "started 4 tasks, and --nnodes allows at most 2 agents"},
      {nodes(3, 4, RdzvBackend::kStatic, ""), 2,
       "started 2 tasks, and --nnodes needs at least 3 agents"},
      {nodes(3, 4, RdzvBackend::kC10d, "n0:29400"), 2,
       "started 2 tasks, and --nnodes needs at least 3 agents"},
      {nodes(2, 2, RdzvBackend::kStatic, ""), 1,
       "started 1 task, and --nnodes needs at least 2 agents"},
      {nodes(2, 2, RdzvBackend::kC10d, "n0:29400"), 1, ""},  // each agent is a step of its own
      {nodes(2, 2, RdzvBackend::kEtcdV2, ""), 1, ""},
  };
  for (const auto& c : cases) {
    const auto several = has_several_agents(c.options, {0, c.tasks});
    EXPECT_EQ(static_cast<bool>(several), c.error.empty()) << c.tasks << " " << c.error;
    if (!several) {
      EXPECT_NE(several.error().message.find(c.error), std::string::npos)
          << several.error().message;
    }
  }
}

TEST(RunEndpoint, HasALineWhereAgentsOfOtherHostsDoNotFindThisOne) {
  const std::string own = " is each host's own address: agents of other hosts do not find this one";
  const RunOptions local =
      nodes(2, 2, RdzvBackend::kC10d, "localhost:" + std::to_string(free_port()));
  EXPECT_EQ(find_run_endpoint(local, {}, {})->doubt, "--rdzv-endpoint localhost" + own);
  EXPECT_EQ(find_run_endpoint(local, {}, {})->note, "");
  RunOptions by_default = nodes(2, 2, RdzvBackend::kStatic, "");
  by_default.master_port = free_port();
  EXPECT_EQ(find_run_endpoint(by_default, {}, {})->doubt,
            "--master-port with the default 127.0.0.1 of --master-addr" + own);
  const EnvMap batch = {{"SLURM_JOB_ID", "12"}, {"SLURM_JOB_NUM_NODES", "2"}};
  EXPECT_EQ(find_run_endpoint(local, LaunchOrigin(batch), {})->note,
            "srun has not started this agent, but job 12 of Slurm has 2 nodes: start it with srun");
}

TEST(RunEndpoint, HasNoAddressThatEachNodeHasForItself) {
  RunOptions options;
  options.local_addr = "localhost";
  const auto run = find_run_endpoint(options, {}, {0, 2, false, true, {"n0", "n1"}});
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().message,
            "--local-addr localhost is each node's own address, but the tasks are on several "
            "nodes: leave it out, or "
            "give the address of a node of the step");
}

TEST(RunEndpoint, NamesTheVariableAlsoOfAnAddressInBrackets) {
  RunOptions options;
  options.local_addr = "::1";
  const LaunchOrigin origin({{"PET_LOCAL_ADDR", "[::1]"}}, {});
  const auto run = find_run_endpoint(options, origin, {0, 2, false, true, {"n0", "n1"}});
  ASSERT_FALSE(run);
  EXPECT_TRUE(run.error().message.starts_with("PET_LOCAL_ADDR=::1 is each node's own address"))
      << run.error().message;
}

TEST(RunEndpoint, IsNoAddressThatStandsForAllOfAHost) {
  for (const std::string any : {"0.0.0.0", "[::]", "0"}) {
    RunOptions fixed = nodes(2, 2, RdzvBackend::kStatic, "");
    fixed.master_addr = any;
    for (const auto& options : {nodes(2, 2, RdzvBackend::kC10d, any), fixed}) {
      const auto run = find_run_endpoint(options, {}, {});
      ASSERT_FALSE(run) << any;
      EXPECT_NE(run.error().message.find(" is each host's own address, and other hosts connect to "
                                         "themselves there: give the address of node 0"),
                std::string::npos)
          << run.error().message;
    }
  }
  RunOptions local = nodes(2, 2, RdzvBackend::kC10d, "127.1:29400");
  const auto run = find_run_endpoint(local, {}, {0, 2, false, true, {"n0", "n1"}});
  ASSERT_FALSE(run);
  EXPECT_NE(run.error().message.find("127.1 is each node's own address"), std::string::npos)
      << run.error().message;
}

TEST(RunEndpoint, AtAllAddressesOfAHostIsThatOfWhoSaysThatItIsNode0) {
  for (const std::string any : {"0.0.0.0:", "[::]:"}) {
    const std::string endpoint = any + std::to_string(free_port());
    for (const auto backend : {RdzvBackend::kStatic, RdzvBackend::kC10d}) {
      RunOptions options = nodes(2, 2, backend, endpoint);
      options.node_rank = 0;
      options.rdzv_conf.is_host = true;
      const auto run = find_run_endpoint(options, {}, {});
      ASSERT_TRUE(run) << run.error().message;
      EXPECT_TRUE(run->is_for_others);
      EXPECT_TRUE(is_any_address(*bound_host(run->listener)));
      EXPECT_FALSE(find_run_endpoint(options, {}, {0, 2})) << "the launcher knows better";
      options.node_rank = 1;
      options.rdzv_conf.is_host = false;
      EXPECT_FALSE(find_run_endpoint(options, {}, {}));
    }
  }
}

// Of documentation: no interface has 192.0.2.1.
TEST(RunEndpoint, IsListenedForByWhoSaysThatItIsNode0) {
  const std::string endpoint = "192.0.2.1:" + std::to_string(free_port());
  RunOptions fixed = nodes(2, 2, RdzvBackend::kStatic, endpoint);
  fixed.node_rank = 0;
  RunOptions by_conf = nodes(2, 2, RdzvBackend::kC10d, endpoint);
  by_conf.rdzv_conf.is_host = true;
  const LaunchOrigin in_job({{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NUM_NODES", "2"}}, {});
  for (const auto& options : {fixed, by_conf}) {
    // By hand, and as a step that is all of a job; not one task of a step, nor a step of a job with
    // other nodes.
    for (const int tasks : {0, 1}) {
      const auto run = find_run_endpoint(options, {}, {0, tasks});
      ASSERT_TRUE(run) << run.error().message;
      EXPECT_TRUE(run->listener.open());
      EXPECT_EQ(run->own_host, "127.0.0.1");
    }
    EXPECT_FALSE(find_run_endpoint(options, {}, {0, 2}));
    EXPECT_FALSE(find_run_endpoint(options, in_job, {0, 1}));
  }
  EXPECT_FALSE(find_run_endpoint(nodes(2, 2, RdzvBackend::kStatic, endpoint), {}, {}));
}

// Kubeflow gives localhost to rank 0, and its name to the others.
TEST(RunEndpoint, OfNode0AtLocalhostIsReachedByOthers) {
  const std::string endpoint = "localhost:" + std::to_string(free_port());
  for (const auto backend : {RdzvBackend::kStatic, RdzvBackend::kC10d}) {
    RunOptions options = nodes(2, 2, backend, endpoint);
    options.node_rank = 0;
    options.rdzv_conf.is_host = true;
    const auto run = find_run_endpoint(options, {}, {});
    ASSERT_TRUE(run) << run.error().message;
    EXPECT_TRUE(run->is_for_others);
    EXPECT_TRUE(is_any_address(*bound_host(run->listener)));
    EXPECT_EQ(run->doubt, "");
  }
  // Nobody says so.
  const auto run = find_run_endpoint(nodes(2, 2, RdzvBackend::kC10d, endpoint), {}, {});
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_FALSE(run->is_for_others);
  EXPECT_TRUE(is_loopback(*bound_host(run->listener)));
}

TEST(RunEndpoint, MayGetItsAddressLater) {
  for (const auto backend : {RdzvBackend::kStatic, RdzvBackend::kC10d}) {
    auto run = find_run_endpoint(nodes(2, 2, backend, "no-such-host.invalid:0"), {}, {});
    ASSERT_TRUE(run) << run.error().message;
    EXPECT_FALSE(run->listener.open());
    run->coordinator.port = free_port();
    EXPECT_EQ(listen_at_endpoint(*run, "192.0.2.1").operator bool(), backend == RdzvBackend::kC10d);
    EXPECT_FALSE(run->listener.open());
    EXPECT_TRUE(listen_at_endpoint(*run, "127.0.0.1"));
    EXPECT_TRUE(run->listener.open());
  }
}

TEST(RunEndpoint, OfC10dIsHeldByTheFirstThatCanListen) {
  const std::string endpoint = "127.0.0.1:" + std::to_string(free_port());
  const auto first = find_run_endpoint(nodes(2, 3, RdzvBackend::kC10d, endpoint), {}, {});
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_TRUE(first->listener.open());
  EXPECT_EQ(first->shape, (RunShape{2, 3, 3, 0}));
  EXPECT_EQ(first->run_id, "none");
  const auto second = find_run_endpoint(nodes(2, 3, RdzvBackend::kC10d, endpoint), {}, {});
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_FALSE(second->listener.open());
  EXPECT_EQ(second->coordinator, first->coordinator);
}

// LOCAL_RANK would be 0 in each of them, and each would start workers for all GPUs of its node.
TEST(RunEndpoint, OfTheOptionsKnowsTheTasksThatTheLauncherStartedOnOneNode) {
  const EnvMap slurm = {{"SLURM_JOB_ID", "7"},
                        {"SLURM_STEP_ID", "0"},
                        {"SLURM_PROCID", "2"},
                        {"SLURM_STEP_NUM_TASKS", "3"},
                        {"SLURM_NODEID", "1"},
                        {"SLURM_LOCALID", "1"},
                        {"SLURM_STEP_NODELIST", "n[0-1]"},
                        {"SLURM_GTIDS", "1,2"},
                        {"SLURM_STEP_TASKS_PER_NODE", "1,2"}};
  const EnvMap mpirun = {{"OMPI_COMM_WORLD_RANK", "2"},
                         {"OMPI_COMM_WORLD_SIZE", "4"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  auto fixed = nodes(0, 0, RdzvBackend::kStatic, "");
  fixed.master_addr = "127.0.0.2";
  for (const auto& [environment, node] :
       {std::pair(slurm, std::string("n1")), std::pair(mpirun, host_name())}) {
    const auto task = launched_task(LaunchOrigin(environment));
    ASSERT_TRUE(task) << task.error().message;
    for (const auto& options : {nodes(0, 0, RdzvBackend::kC10d, "192.0.2.1"), fixed}) {
      LaunchedTask here = *task;
      here.has_several_nodes = false;  // or the address would be looked at
      const auto run = find_run_endpoint(options, LaunchOrigin(environment), here);
      ASSERT_TRUE(run) << run.error().message;
      EXPECT_EQ(run->node, node);
      EXPECT_FALSE(run->is_whole_node);
    }
  }
}

TEST(RunEndpoint, HasTorchrunsPorts) {
  auto c10d = nodes(2, 2, RdzvBackend::kC10d, "192.0.2.1");
  EXPECT_EQ(find_run_endpoint(c10d, {}, {})->coordinator, (Endpoint{"192.0.2.1", 29400}));
  auto fixed = nodes(2, 2, RdzvBackend::kStatic, "");
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
  auto options = nodes(2, 4, RdzvBackend::kStatic, "127.0.0.1");
  EXPECT_EQ(error_of(options),
            "--nnodes MIN:MAX needs --rdzv-backend c10d: with static the number of nodes is fixed");
  options = nodes(4, 4, RdzvBackend::kStatic, "127.0.0.1");
  options.node_rank = 4;
  EXPECT_EQ(error_of(options), "--node-rank 4: expected a number below 4 (--nnodes)");
  options = nodes(2, 4, RdzvBackend::kC10d, "127.0.0.1");
  options.active_nodes = 5;
  EXPECT_EQ(error_of(options), "--active 5: expected a number from 2 to 4 (--nnodes)");
  options =
      nodes(2, 2, RdzvBackend::kStatic, "192.0.2.1");  // of documentation: no interface here has it
  EXPECT_NE(error_of(options).find("192.0.2.1 is not an address of "), std::string::npos);
}

}  // namespace
