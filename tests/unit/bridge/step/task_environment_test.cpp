// The environment and the notes of a task of a step.
#include "bridge/step/task_environment.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <numeric>

#include <gtest/gtest.h>

#include "bridge/core/nested_launch.h"
#include "bridge/net/address.h"
#include "tests/support/child_ending.h"

namespace torchbridge {
namespace {

struct TaskPosition {
  int rank, node, local_rank;
  std::vector<int> ranks_here;
  std::vector<int> node_of_rank{};
};

// Of a task in a step of one or two nodes that hold these numbers of tasks.
TaskEnvironment environment_of(const TaskPosition& at, std::vector<int> tasks_per_node,
                               Placement placement, const char* list,
                               const std::vector<std::string>& program,
                               const EnvMap& environment = {{"TORCHELASTIC_ERROR_FILE", "none"}}) {
  LaunchFacts facts;
  facts.launcher = "slurm";
  facts.job_id = "5";
  facts.step_id = "0";
  facts.world_size = std::accumulate(tasks_per_node.begin(), tasks_per_node.end(), 0);
  facts.nodes = {"n0", "n1"};
  facts.nodes.resize(tasks_per_node.size());
  facts.tasks_per_node = std::move(tasks_per_node);
  facts.placement = placement;
  facts.rank = at.rank;
  facts.node_rank = at.node;
  facts.local_rank = at.local_rank;
  facts.ranks_here = at.ranks_here;
  facts.node_of_rank = at.node_of_rank;
  facts.local_size = static_cast<int>(at.ranks_here.size());
  const LaunchOptions options = *parse_options(list);
  const auto plan =
      plan_step(facts, *step_options(environment, options), Endpoint{"10.0.0.1", 29500}, {});
  return *task_environment(*plan, environment, Socket(), program);
}

TEST(StepOptions, RefuseATokenThatCanBeGuessed) {
  const auto step = step_options({{"TORCHBRIDGE_RDZV_TOKEN", "x"}}, {});
  ASSERT_FALSE(step);
  EXPECT_NE(step.error().message.find("TORCHBRIDGE_RDZV_TOKEN: the token has 1 characters"),
            std::string::npos)
      << step.error().message;
}

std::vector<std::string> notes(const TaskPosition& at, Placement placement, const char* list) {
  return environment_of(at, {3, 1}, placement, list, {}).notes;
}

// Rank 0 sees its own node alone.
TEST(TaskEnvironment, HasANoteOnGpusOfANodeThatIsUnlikeRankZeros) {
  const EnvMap one_gpu = {{"CUDA_VISIBLE_DEVICES", "0"},
                          {"SLURM_GPUS_ON_NODE", "1"},
                          {"TORCHELASTIC_ERROR_FILE", "none"}};
  const auto on_second_node = [&](int local_rank, std::vector<int> tasks, EnvMap more = {}) {
    const int first = tasks[0];
    const TaskPosition at{first + local_rank, 1, local_rank, {first, first + 1}};
    return environment_of(at, std::move(tasks), Placement::kBlock, "", {},
                          with_variables(one_gpu, {more.begin(), more.end()}))
        .notes;
  };
  const auto uneven = on_second_node(0, {1, 2});
  ASSERT_EQ(uneven.size(), 1u);
  EXPECT_TRUE(uneven[0].find(": 2 tasks on this node for 1 GPU: ") != std::string::npos)
      << uneven[0];
  EXPECT_EQ(on_second_node(1, {1, 2}).size(), 0u);
  EXPECT_EQ(on_second_node(0, {2, 2}).size(), 0u);
  EXPECT_EQ(on_second_node(0, {2, 2}, {{"SLURM_GPUS", "3"}}).size(), 1u);
}

// NAME=VALUE of those whose name begins so, one after the other.
std::string variables_of(const TaskEnvironment& task, const char* beginning) {
  std::string found;
  for (const auto& [name, value] : task.variables) {
    if (name.starts_with(beginning)) found += (found.empty() ? "" : " ") + name + "=" + value;
  }
  return found;
}

// Of the second node's only task.
std::string variables(const char* beginning, const char* options,
                      const std::vector<std::string>& program,
                      const std::vector<int>& tasks_per_node = {1, 1}) {
  const int rank = tasks_per_node[0];
  return variables_of(
      environment_of({rank, 1, 0, {rank}}, tasks_per_node, Placement::kBlock, options, program),
      beginning);
}

TEST(Verbose, NotesOnceOnEachNodeThatRankLessLocalRankIsNotItsBase) {
  const std::string advice = ": programs that build device meshes node by node need ranks=block";
  const std::string on_first =
      "node 0: RANK - LOCAL_RANK is 0 to 1, not always the node's base 0" + advice;
  const std::string on_second = "node 1: RANK - LOCAL_RANK is 1, not the node's base 3" + advice;
  const auto first = notes({0, 0, 0, {0, 2, 3}}, Placement::kCyclic, "verbose");
  ASSERT_EQ(first.size(), 2u);
  EXPECT_TRUE(first[0].starts_with(
      "4 ranks on 2 nodes (3,1), MASTER_ADDR=10.0.0.1 MASTER_PORT=29500, run slurm-5.0"))
      << first[0];
  EXPECT_EQ(first[1], on_first);
  EXPECT_EQ(notes({2, 0, 1, {0, 2, 3}}, Placement::kCyclic, "verbose"), std::vector<std::string>());
  EXPECT_EQ(notes({1, 1, 0, {1}}, Placement::kCyclic, "verbose"),
            std::vector<std::string>{on_second});
}

TEST(Verbose, HasNoNoteOnTorchrunsOwnNumbering) {
  EXPECT_EQ(notes({0, 0, 0, {0, 1, 2}}, Placement::kBlock, "verbose").size(), 1u);
  EXPECT_EQ(notes({3, 1, 0, {3}}, Placement::kBlock, "verbose").size(), 0u);
  EXPECT_EQ(notes({0, 0, 0, {0, 2, 3}}, Placement::kCyclic, "verbose,ranks=block").size(), 1u);
  EXPECT_EQ(notes({1, 1, 0, {1}}, Placement::kCyclic, "verbose,ranks=block").size(), 0u);
}

TEST(AgentDefaults, AreForTorchrunWhereverTheWordsOfTheProgramNameIt) {
  const std::string defaults =
      "PET_NNODES=2 PET_NODE_RANK=1 PET_RDZV_ID=slurm-5.0 PET_RDZV_ENDPOINT=10.0.0.1:29500 "
      "PET_MASTER_ADDR=10.0.0.1 "
      "PET_MASTER_PORT=29500";
  const std::vector<std::string> agents[] = {
      {"torchrun", "train.py"},
      {"/opt/venv/bin/torchrun", "--nproc-per-node=2", "train.py"},
      {"python", "-m", "torch.distributed.run", "train.py"},
      {"python", "-m", "torch.distributed.launch", "train.py"},
      {"bash", "-c", "source env.sh && torchrun train.py"},
      {"bash", "-c", "exec \"$VENV/bin/torchrun\" train.py"},
      {"sh", "-c", "torchrun --nnodes=16 train.py"},
      {"torchrun", "--nnodes", "1:4", "train.py"},
      {"python", "-mtorch.distributed.run", "train.py"},
      {"sh", "-c", "$(which torchrun) --rdzv_backend=c10d train.py"},
  };
  for (const auto& program : agents)
    EXPECT_EQ(variables("PET_", "", program), defaults) << program.back();
  EXPECT_EQ(variables("PET_", "", agents[0], {2, 1}), "")
      << "each agent of a node would start all of its workers";
}

// torchrun takes PET_RDZV_ENDPOINT before --master-addr, and agents of two steps need one run id
// and one port.
TEST(AgentDefaults, LeaveOutTheRendezvousWhereTheUserSaysWhereItIs) {
  const std::string node = "PET_NNODES=2 PET_NODE_RANK=1 PET_MASTER_ADDR=10.0.0.1";
  for (const char* option : {"--master_addr=n0", "--rdzv_endpoint=n0:1"})
    EXPECT_EQ(variables("PET_", "", {"torchrun", option, "train.py"}), node);
  EXPECT_EQ(variables("PET_", "", {"torchrun", "--master-port=29778", "train.py"}),
            node + " PET_MASTER_PORT=29500");
}

// As the option.
TEST(AgentDefaults, LeaveOutTheRendezvousWhereItIsExported) {
  const auto with = [](const char* name, const char* list) {
    return variables_of(
        environment_of({1, 1, 0, {1}}, {1, 1}, Placement::kBlock, list, {"torchrun"},
                       {{name, "n0"}, {"TORCHELASTIC_ERROR_FILE", "none"}}),
        "PET_");
  };
  EXPECT_EQ(with("PET_MASTER_ADDR", ""), "PET_NNODES=2 PET_NODE_RANK=1");
  EXPECT_EQ(with("PET_RDZV_ENDPOINT", ""), "PET_NNODES=2 PET_NODE_RANK=1 PET_MASTER_ADDR=10.0.0.1");
  EXPECT_EQ(with("PET_MASTER_ADDR", "override=yes"), variables("PET_", "", {"torchrun"}));
}

// With srun -m arbitrary Slurm's first node need not have rank 0, where the store is.
TEST(AgentDefaults, NumberTheNodesByTheirRanks) {
  const auto first_node =
      environment_of({1, 0, 0, {1}, {1, 0}}, {1, 1}, Placement::kUnknown, "", {"torchrun"});
  EXPECT_TRUE(variables_of(first_node, "PET_").starts_with("PET_NNODES=2 PET_NODE_RANK=1 "));
  EXPECT_EQ(variables_of(first_node, "GROUP_RANK"), "GROUP_RANK=0");
}

TEST(AgentDefaults, OfAnOnlyTaskTakeAFreePort) {
  const auto alone = [](const std::vector<std::string>& program) {
    return environment_of({0, 0, 0, {0}}, {1}, Placement::kBlock, "", program);
  };
  const TaskEnvironment task = alone({"torchrun", "train.py"});
  EXPECT_EQ(variables_of(task, "PET_"),
            "PET_NNODES=1 PET_NODE_RANK=0 PET_RDZV_ID=slurm-5.0 PET_RDZV_BACKEND=c10d "
            "PET_RDZV_ENDPOINT=localhost:0 PET_LOCAL_ADDR=127.0.0.1");
  EXPECT_EQ(variables_of(alone({"torchrun", "--master-port=29778", "train.py"}), "PET_RDZV"), "");
}

// As of the nodes of a job that each have an srun of their own.
TEST(AgentDefaults, OfAnOnlyTaskDoNotLeadToAnExportedAddress) {
  const auto alone = [](const std::vector<std::string>& program) {
    return variables_of(environment_of({0, 0, 0, {0}}, {1}, Placement::kBlock, "", program,
                                       {{"MASTER_ADDR", "192.0.2.1"},
                                        {"MASTER_PORT", "29500"},
                                        {"TORCHELASTIC_ERROR_FILE", "none"}}),
                        "PET_");
  };
  const std::string one = "PET_NNODES=1 PET_NODE_RANK=0";
  EXPECT_EQ(alone({"torchrun", "train.py"}),
            one + " PET_RDZV_ID=slurm-5.0 PET_RDZV_BACKEND=c10d PET_RDZV_ENDPOINT=localhost:0");
  EXPECT_EQ(alone({"torchrun", "--nnodes=2", "--master-addr=n0", "train.py"}), one);
  EXPECT_EQ(alone({"torchrun", "--master-port=29501", "train.py"}), one);
}

// The steps of a job may have the endpoint of one of them.
TEST(StorePort, OfAnOnlyTaskIsNotTakenWhereItIsExported) {
  LaunchFacts facts;
  facts.launcher = "slurm";
  facts.nodes = {"n0"};
  facts.tasks_per_node = {1};
  facts.placement = Placement::kBlock;
  facts.ranks_here = {0};
  const auto reserved = [&](const EnvMap& environment) {
    auto plan = plan_step(facts, *step_options(environment, {}), std::nullopt, {});
    return plan ? reserve_store_socket(*plan, environment) : plan.error();
  };
  for (const char* host : {"192.0.2.1", "name.invalid", "127.0.0.1"}) {
    const auto socket = reserved({{"MASTER_ADDR", host}, {"MASTER_PORT", "29500"}});
    ASSERT_TRUE(socket) << socket.error().message;
    EXPECT_FALSE(socket->open());
  }
  EXPECT_TRUE(reserved({{"MASTER_ADDR", "name.invalid"}}));
  const auto own = reserved({});
  ASSERT_TRUE(own) << own.error().message;
  EXPECT_TRUE(own->open());
}

TEST(AgentDefaults, AreMissedInALineWhereANodeHasSeveral) {
  const auto lines = [](const std::vector<std::string>& program) {
    return environment_of({0, 0, 0, {0, 1}}, {2, 1}, Placement::kBlock, "", program).notes;
  };
  const auto noted = lines({"torchrun", "--nproc-per-node=1", "train.py"});
  ASSERT_EQ(noted.size(), 1u);
  EXPECT_TRUE(noted[0].starts_with("3 tasks each run a torchrun")) << noted[0];
  for (const char* option : {"--standalone", "--nnodes=1", "--nnodes=3", "--master-addr=n0"})
    EXPECT_EQ(lines({"torchrun", option, "train.py"}).size(), 0u) << option;
}

// It would take PET_NNODES and wait.
TEST(AgentDefaults, HaveALineForATorchrunOfOneNodeBesideThem) {
  const auto lines = [](const std::string& text) {
    return environment_of({0, 0, 0, {0}}, {1, 1}, Placement::kBlock, "", {"bash", "-c", text})
        .notes.size();
  };
  EXPECT_EQ(lines("torchrun --standalone prep.py; torchrun train.py"), 1u);
  EXPECT_EQ(lines("torchrun --nnodes=1 prep.py; torchrun train.py"), 1u);
  EXPECT_EQ(lines("torchrun --standalone --nnodes=1 prep.py; torchrun train.py"), 0u);
  EXPECT_EQ(lines("torchrun --standalone prep.py"), 0u);
}

TEST(AgentDefaults, AreKnownAsThoseOfAnOuterLaunch) {
  for (const std::vector<int>& tasks : {std::vector<int>{1}, {1, 1}}) {
    auto task =
        environment_of({0, 0, 0, {0}}, tasks, Placement::kBlock, "", {"torchrun"},
                       {{"CUDA_VISIBLE_DEVICES", "0"}, {"TORCHELASTIC_ERROR_FILE", "none"}});
    add_setter({SetBy::kPlugin, "slurm-5.0"}, {}, task.variables);
    for (const auto& [name, value] :
         without_outer_run(with_variables({}, task.variables), {.launcher = "none"}))
      EXPECT_FALSE(name.starts_with("PET_")) << name;
  }
}

TEST(AgentDefaults, AreNotForOtherProgramsNorForAnAgentAlone) {
  const std::vector<std::string> others[] = {
      {},
      {"python", "train.py"},
      {"bash", "train.sh"},
      {"/home/u/torchrun/run.sh"},
      {"/home/u/torchrun-jobs/run.sh"},
      {"torchrun.sh"},
      {"torchrun", "--standalone", "train.py"},
      {"torchrun", "--nnodes=1", "train.py"},
      {"torchrun", "--nnodes", "1", "train.py"},
      {"torchrun", "--nnodes", "1:1", "train.py"},
      {"bash", "-c", "cd /data; torchrun --standalone --nproc-per-node=2 train.py"},
      {"bash", "-c", "torchrun --nnodes=1:1 train.py"},
      {"bash", "-c", "torchrun --nnodes 1 train.py"},
      {"bash", "-c", "torchrun \\\n--standalone\\\ntrain.py"},
      {"run-torchrun"},
      {"/home/u/bin/my_torchrun", "train.py"},
      {"python", "-m", "my.torch.distributed.run"},
      {"bash", "-c", "torchrun --nnodes=\"1\" train.py"},
      {"bash", "-c", "torchrun --nnodes '1:1' train.py"},
      {"torchrun", "--rdzv-endpoint=localhost:0", "train.py"},
      {"torchrun", "--rdzv_endpoint", "localhost", "train.py"},
      {"torchrun", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:29400", "train.py"},
  };
  for (const auto& program : others) {
    EXPECT_EQ(variables("PET_", "", program), "") << (program.empty() ? "" : program.back());
  }
}

TEST(Elastic, NoLeavesTorchelasticOut) {
  const auto task = environment_of({0, 0, 0, {0}}, {1, 1}, Placement::kBlock, "elastic=no", {}, {});
  std::string names;
  for (const auto& [name, value] : task.variables) names += name + " ";
  EXPECT_EQ(names.find("TORCHELASTIC"), names.npos) << names;
  EXPECT_NE(names.find("LOCAL_RANK RANK "), names.npos) << names;
  EXPECT_NE(variables("TORCHELASTIC_RUN_ID", "", {}), "");
}

TEST(Interface, OfNcclIsSetByNameAlone) {
  EXPECT_EQ(variables("NCCL_", "", {}), "");
  EXPECT_EQ(variables("GLOO_", "iface=none", {}), "");
  const auto usable = usable_interfaces(/*several_nodes=*/true).names;
  if (usable.empty()) GTEST_SKIP() << "this machine has no interface but the loopback";
  const std::string name = usable.front(), option = "iface=" + name;
  EXPECT_EQ(variables("NCCL_", option.c_str(), {}), "NCCL_SOCKET_IFNAME==" + name);
  EXPECT_EQ(variables("GLOO_", option.c_str(), {}), "GLOO_SOCKET_IFNAME=" + name);
}

// Another user has made the folder that this user's name is.
TEST(ErrorFiles, ThatAnotherUserPreventsAreNotedByOneTaskOfTheNode) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  const uid_t user = 1'000'000'000 + static_cast<uid_t>(getpid());
  const std::string folder = "/tmp/torch-env-" + std::to_string(user);
  ASSERT_EQ(mkdir(folder.c_str(), 0755), 0);
  const auto ending = ending_of_child([&] {
    if (setuid(user) != 0) _exit(1);
    const auto first =
        environment_of({0, 0, 0, {0, 1}}, {2, 1}, Placement::kBlock, "", {}, {}).notes;
    const auto second =
        environment_of({1, 0, 1, {0, 1}}, {2, 1}, Placement::kBlock, "", {}, {}).notes;
    const std::string reason =
        folder + " is not a folder that belongs to this user alone: the tasks of ";
    if (first.size() != 1 || !first[0].starts_with(reason)) _exit(2);
    if (!second.empty()) _exit(3);
  });
  std::filesystem::remove(folder);
  EXPECT_EQ(ending, exited(0));
}

}  // namespace
}  // namespace torchbridge
