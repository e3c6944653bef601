#include "bridge/core/endpoint.h"

#include <set>

#include <gtest/gtest.h>

#include "bridge/core/launch_options.h"
#include "bridge/core/task_map.h"

namespace torchbridge {
namespace {

LaunchFacts two_nodes() {
  LaunchFacts facts;
  facts.launcher = "slurm";
  facts.job_id = "123";
  facts.step_id = "0";
  facts.world_size = 3;
  facts.nodes = {"n7", "n8"};
  facts.tasks_per_node = {1, 2};
  return facts;
}

Result<Endpoint> endpoint(const LaunchFacts& facts, const char* options, PortRange ephemeral = {}) {
  return endpoint_of(facts, TaskMap::block(facts.tasks_per_node), *parse_options(options),
                     ephemeral);
}

TEST(Endpoint, IsOnTheNodeOfRankZero) {
  const LaunchFacts facts = two_nodes();
  EXPECT_EQ(endpoint(facts, "")->host, "n7");
  const TaskMap rank_zero_second = TaskMap::from_nodes({1, 0, 1});
  EXPECT_EQ(endpoint_of(facts, rank_zero_second, {}, {})->host, "n8");
  EXPECT_EQ(endpoint_of(facts, rank_zero_second, *parse_options("ranks=block"), {})->host, "n7");
}

TEST(Endpoint, OfRanksPlacedOneByOneNeedsBlockNumbering) {
  const LaunchFacts facts = two_nodes();
  const TaskMap this_node_only = TaskMap::of_one_node({1, 2}, 1, {0, 2});
  const auto unknown = endpoint_of(facts, this_node_only, {}, {});
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("ranks=block"), std::string::npos);
  EXPECT_EQ(endpoint_of(facts, this_node_only, *parse_options("ranks=block"), {})->host, "n7");
}

TEST(Endpoint, OfSeveralComponentsIsOnTheFirstNodeUnlessRanksHereContradict) {
  LaunchFacts facts = two_nodes();
  facts.placement = Placement::kCyclic;
  const struct {
    const char* what;
    int node;
    std::vector<int> ranks;
    bool known;
  } kCases[] = {
      {"rank 0 is on the first node", 0, {0}, true},
      {"rank 0 may be on the first node", 1, {1, 2}, true},
      {"rank 0 is here, on the second node", 1, {0, 2}, false},
      {"rank 0 is not here, on the first node", 0, {1}, false},
  };
  for (const auto& test : kCases) {
    facts.node_rank = test.node;
    const auto node = master_node_of(facts, TaskMap::of_one_node({1, 2}, test.node, test.ranks),
                                     RankRule::kSlurm);
    EXPECT_EQ(static_cast<bool>(node), test.known) << test.what;
    EXPECT_EQ(node ? *node : 0, 0) << test.what;
  }
}

TEST(Endpoint, FollowsTheAddressRule) {
  EXPECT_EQ(endpoint(two_nodes(), "addr=suffix:-ib0")->host, "n7-ib0");
  EXPECT_EQ(endpoint(two_nodes(), "addr=10.1.2.3")->host, "10.1.2.3");
}

TEST(Endpoint, PrefersTheReservedPort) {
  LaunchFacts facts = two_nodes();
  facts.reserved_ports = {20004, 20005};
  EXPECT_EQ(endpoint(facts, "")->port, 20004);
  EXPECT_EQ(endpoint(facts, "port=29500")->port, 29500);
}

TEST(Endpoint, DerivesDifferentPortsForStepsAndRestarts) {
  std::set<int> ports;
  LaunchFacts facts = two_nodes();
  for (int step = 0; step < 100; ++step) {
    facts.step_id = std::to_string(step);
    ports.insert(endpoint(facts, "")->port);
  }
  facts.step_id = "0";
  facts.restart_count = 1;
  ports.insert(endpoint(facts, "")->port);
  EXPECT_EQ(ports.size(), 101u);
}

TEST(Endpoint, KeepsDerivedPortsOutOfTheEphemeralRange) {
  const PortRange kRanges[] = {{32768, 60999}, {1024, 20000}, {20000, 60999}, {15000, 31998}};
  for (const PortRange ephemeral : kRanges) {
    LaunchFacts facts = two_nodes();
    for (int job = 0; job < 1000; ++job) {
      facts.job_id = std::to_string(job);
      const int port = endpoint(facts, "", ephemeral)->port;
      EXPECT_TRUE(port < ephemeral.low || port > ephemeral.high) << port;
      EXPECT_TRUE(port >= 15000 && port < 32000) << port;
    }
  }
  const auto none_left = endpoint(two_nodes(), "", {1024, 65535});
  ASSERT_FALSE(none_left);
  EXPECT_NE(none_left.error().message.find("1024-65535"), std::string::npos);
}

TEST(Endpoint, StaysInTheGivenRange) {
  LaunchFacts facts = two_nodes();
  for (int step = 0; step < 50; ++step) {
    facts.step_id = std::to_string(step);
    const int port = endpoint(facts, "port=41000-41004")->port;
    EXPECT_TRUE(port >= 41000 && port <= 41004) << port;
  }
}

TEST(PortRange, ReadsTheKernelsText) {
  EXPECT_EQ(*parse_port_range("32768\t60999\n"), (PortRange{32768, 60999}));
  EXPECT_EQ(*parse_port_range("1 2"), (PortRange{1, 2}));
  for (const char* text : {"", "1", "1 ", "a b", "5 4", "0 10", "1 65536", "\t"})
    EXPECT_FALSE(parse_port_range(text)) << text;
}

}  // namespace
}  // namespace torchbridge
