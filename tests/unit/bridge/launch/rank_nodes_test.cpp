// Ranks placed one by one, as threads; two loopback addresses are the nodes.
#include "bridge/launch/rank_nodes.h"

#include <unistd.h>

#include <thread>

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

using std::chrono::milliseconds;

// Slurm's rank 0 and 2 on the second node, 1 on the first.
std::vector<LaunchFacts> three_ranks(const char* step) {
  LaunchFacts step_facts;
  step_facts.launcher = "slurm";
  step_facts.job_id = std::to_string(getpid());  // concurrent tests use different ports
  step_facts.step_id = step;
  step_facts.world_size = 3;
  step_facts.nodes = {"127.0.0.1", "127.0.0.2"};
  step_facts.tasks_per_node = {1, 2};
  std::vector<LaunchFacts> ranks(3, step_facts);
  const std::vector<int> kFirst = {1}, kSecond = {0, 2};
  for (int rank = 0; rank < 3; ++rank) {
    LaunchFacts& facts = ranks[rank];
    facts.rank = rank;
    facts.node_rank = rank == 1 ? 0 : 1;
    facts.local_rank = rank == 2 ? 1 : 0;
    facts.ranks_here = rank == 1 ? kFirst : kSecond;
    facts.local_size = static_cast<int>(facts.ranks_here.size());
  }
  return ranks;
}

std::vector<std::string> ask(std::vector<LaunchFacts>& ranks, milliseconds timeout) {
  std::vector<std::string> errors(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] {
      const auto asked = exchange_placement(ranks[i], "token", timeout);
      if (!asked) errors[i] = asked.error().message;
    });
  }
  for (auto& thread : threads) thread.join();
  return errors;
}

TEST(ExchangePlacement, GivesEveryRankTheNodesOfAll) {
  auto ranks = three_ranks("0");
  EXPECT_EQ(ask(ranks, milliseconds(20000)), std::vector<std::string>(3));
  for (const auto& facts : ranks)
    EXPECT_EQ(facts.node_of_rank, (std::vector<int>{1, 0, 1})) << facts.rank;
}

TEST(ExchangePlacement, NamesARankThatDidNotArrive) {
  auto ranks = three_ranks("1");
  ranks.pop_back();
  for (const auto& error : ask(ranks, milliseconds(300))) {
    EXPECT_NE(error.find("did not arrive"), std::string::npos) << error;
    EXPECT_TRUE(error.ends_with(": give ranks=block, which numbers the ranks node by node"))
        << error;
  }
}

TEST(CanExchangePlacement, IsTrueIfEveryRankFindsThatItIsNotKnown) {
  auto facts = three_ranks("2").front();
  EXPECT_TRUE(can_exchange_placement(facts));
  facts.placement = Placement::kCyclic;
  EXPECT_FALSE(can_exchange_placement(facts));
  facts.heterogeneous = true;  // the rule of one component
  EXPECT_TRUE(can_exchange_placement(facts));
}

}  // namespace
}  // namespace torchbridge
