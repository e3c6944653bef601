#include "bridge/step/explain.h"

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

LaunchFacts uneven() {
  LaunchFacts facts;
  facts.launcher = "slurm";
  facts.job_id = "12";
  facts.step_id = "0";
  facts.world_size = 8;
  facts.nodes = {"n0", "n1", "n2", "n3"};
  facts.tasks_per_node = {5, 1, 1, 1};
  facts.reserved_ports = {20001};
  return facts;
}

TEST(Explain, ShowsEachRankWithReasons) {
  const LaunchFacts facts = uneven();
  const TaskMap map = TaskMap::block(facts.tasks_per_node);
  const TorchEnv env = torch_env_of(facts, map, {}, {"10.0.0.1", 20001});
  const std::vector<NodeFacts> nodes = {{"0,1", "0-7", "eth0", {}},
                                        {"", "0-7", "eth0", {}},
                                        {"", "0-7", "eth0", {}},
                                        {"", "0-3", "ib0", {}}};
  EXPECT_EQ(explain(facts, map, {}, {}, env, nodes),
            "8 ranks on 4 nodes, started by slurm as run slurm-12.0\n"
            "  MASTER_ADDR  10.0.0.1  rank 0's node\n"
            "  MASTER_PORT  20001     the first port that slurm reserved for the step\n"
            "  RANK         slurm's   the default\n"
            "  GPUs         auto      as the launcher gave them\n"
            "  CPUs         keep      as the launcher bound the tasks\n"
            "  interface    auto      gloo's, towards rank 0's node; a job on one node needs none\n"
            "\n"
            "  node  name      ranks        local  GPUs  CPUs  interface\n"
            "  0     n0        0-4          0-4    0,1   0-7   eth0\n"
            "  1-2   n1 .. n2  1 rank each  0      -     0-7   eth0\n"
            "  3     n3        7            0      -     0-3   ib0\n"
            "\n"
            "  n0  [ 0 1 2 3 4 ]\n"
            "  n1  [ 5 ]\n"
            "  n2  [ 6 ]\n"
            "  n3  [ 7 ]\n");
}

TEST(Explain, NamesNoLauncherWhereThereIsNone) {
  LaunchFacts facts;
  facts.launcher = "none";
  facts.world_size = 1;
  facts.nodes = {"n0"};
  facts.tasks_per_node = {1};
  const TaskMap map = TaskMap::block(facts.tasks_per_node);
  const TorchEnv env = torch_env_of(facts, map, {}, {"127.0.0.1", 20001});
  const std::string table = explain(facts, map, {}, {}, env, std::vector<NodeFacts>(1));
  EXPECT_TRUE(table.starts_with("1 rank on 1 node, started without a launcher\n")) << table;
  EXPECT_EQ(table.find("none's"), std::string::npos) << table;
}

TEST(Explain, ShowsTheUsersOptions) {
  const LaunchFacts facts = uneven();
  const LaunchOptions options = *parse_options("ranks=block,addr=suffix:-ib,port=500-600");
  const TaskMap map = TaskMap::plane(facts.tasks_per_node, 1);
  const TorchEnv env = torch_env_of(facts, map, options, {"n0-ib", 555});
  const std::vector<NodeFacts> nodes(4);
  const std::string chosen = explain(facts, map, options, {}, env, nodes);
  EXPECT_NE(chosen.find("n0-ib         the name of rank 0's node with -ib"), std::string::npos)
      << chosen;
  EXPECT_NE(chosen.find("from the range port=LO-HI"), std::string::npos) << chosen;
  EXPECT_NE(chosen.find("n3  [ 7 ]"), std::string::npos) << chosen;
  const std::string exported =
      explain(facts, map, options, {.host = true, .port = true}, env, nodes);
  EXPECT_NE(exported.find("n0-ib         exported as MASTER_ADDR"), std::string::npos) << exported;
  EXPECT_NE(exported.find("exported as MASTER_PORT"), std::string::npos) << exported;
}

TEST(Explain, StaysShortOnManyNodes) {
  LaunchFacts facts;
  facts.launcher = "slurm";
  facts.world_size = 100'000;
  facts.tasks_per_node.assign(12'500, 8);
  for (int node = 0; node < 12'500; ++node) facts.nodes.push_back("n" + std::to_string(node));
  const TaskMap map = TaskMap::block(facts.tasks_per_node);
  const TorchEnv env = torch_env_of(facts, map, {}, {"10.0.0.1", 20001});
  const std::string table = explain(facts, map, {}, {}, env, std::vector<NodeFacts>(12'500));
  EXPECT_NE(table.find("0-12499  n0 .. n12499  8 ranks each"), std::string::npos) << table;
  EXPECT_NE(table.find("... and 12484 nodes more"), std::string::npos) << table;
  EXPECT_LT(table.size(), 2000u);
}

TEST(Explain, CountsRowsAboveTheLimit) {
  LaunchFacts facts;
  facts.launcher = "slurm";
  std::vector<int> counts;
  std::vector<NodeFacts> nodes;
  for (int node = 0; node < 1000; ++node) {
    counts.push_back(1 + node % 2);
    facts.nodes.push_back("n" + std::to_string(node));
    nodes.push_back({"", "0-7", "ib0", {}});
  }
  const TaskMap map = TaskMap::block(counts);
  const std::string text = explain(facts, map, {}, {}, TorchEnv(), nodes);
  EXPECT_NE(text.find("... and 936 nodes more"), std::string::npos) << text;
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 100);
}

TEST(Explain, NamesTheNodesWhoseMemoryIsSmall) {
  const LaunchFacts facts = uneven();
  const TaskMap map = TaskMap::block(facts.tasks_per_node);
  const SmallMemory small{"64 MiB", ""};
  const std::vector<NodeFacts> nodes = {
      {"", "", "", {}}, {"", "", "", small}, {"", "", "", {"", "64 KiB"}}, {"", "", "", small}};
  const std::string table = explain(facts, map, {}, {}, TorchEnv(), nodes);
  EXPECT_NE(table.find("\n  n1 and 1 other node: /dev/shm holds 64 MiB, where "), std::string::npos)
      << table;
  EXPECT_NE(table.find("\n  n2: 64 KiB of memory may be locked, "), std::string::npos) << table;
}

TEST(NodeFacts, OfANodeShowWhereItsTasksDiffer) {
  EXPECT_EQ(NodeFacts::of_tasks(
                {{"0,1", "0-7", "ib0", {"1 MiB", ""}}, {"0,1", "0-7", "ib0", {"1 MiB", ""}}}),
            (NodeFacts{"0,1", "0-7", "ib0", {"1 MiB", ""}, {"0,1", "0,1"}}));
  EXPECT_EQ(NodeFacts::of_tasks({{"0", "0-3", "ib0", {}}, {"1", "4-7", "ib0", {}}}),
            (NodeFacts{"0 / 1", "0-3 / 4-7", "ib0", {}, {"0", "1"}}));
  EXPECT_EQ(NodeFacts::of_tasks({{"", "0", "", {}}, {"1", "0", "", {}}}).gpus, "- / 1");
}

TEST(NodeFacts, AreTheSameAfterTextAndBack) {
  const NodeFacts facts{"GPU-1,GPU-2", "0-7", "eth0", {"64 MiB", "8 KiB"}};
  EXPECT_EQ(NodeFacts::from(facts.text()), facts);
  EXPECT_EQ(NodeFacts::from("nonsense"), NodeFacts{});
  EXPECT_EQ(NodeFacts::from("\x1b[2J\t\t\t\t").gpus, "\\x1b[2J");
}

}  // namespace
}  // namespace torchbridge
