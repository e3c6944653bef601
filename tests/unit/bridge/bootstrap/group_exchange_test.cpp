// Ranks of several nodes as threads of this process: a node is another key of the unix sockets.
#include <unistd.h>

#include <thread>

#include <gtest/gtest.h>

#include "bridge/bootstrap/exchange.h"
#include "bridge/net/socket.h"
#include "tests/support/free_port.h"

namespace torchbridge {
namespace {

using std::chrono::milliseconds;
using Values = std::vector<std::string>;

// Instead of PMIx: returns at once.
class Fixed : public Exchange {
 public:
  Result<Values> all_gather(const std::string&, milliseconds) override {
    return Values{"fallback"};
  }
};

class GroupExchangeTest : public ::testing::Test {
 protected:
  // Ranks 0 and 3 on the first node, 1 and 2 on the second. `late` starts after two thirds of the
  // timeout.
  std::vector<Result<Values>> gather(const std::vector<int>& ranks, milliseconds timeout,
                                     int rounds = 1, int late = -1) {
    std::vector<Result<Values>> answers(ranks.size(), Error{"none"});
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      threads.emplace_back([&, i] {
        if (ranks[i] == late) std::this_thread::sleep_for(timeout * 2 / 3);
        for (int round = 0; round < rounds; ++round) {
          const std::string value =
              "rank " + std::to_string(ranks[i]) + " round " + std::to_string(round);
          answers[i] =
              make_group_exchange(group_of(ranks[i]), fallback_)->all_gather(value, timeout);
        }
      });
    }
    for (auto& thread : threads) thread.join();
    return answers;
  }

  BootstrapGroup group_of(int rank) const {
    const bool first = rank == 0 || rank == 3;
    const std::string test = testing::UnitTest::GetInstance()->current_test_info()->name();
    return {.job = test,
            .secret = "secret",
            .rank = rank,
            .size = 4,
            .node_key =
                "test " + std::to_string(getpid()) + " " + test + (first ? " first" : " second"),
            .local_rank = rank >= 2 ? 1 : 0,
            .local_size = 2,
            .listens = first,
            .ports = ports_,
            .first_hosts = first ? Values() : hosts_};
  }

  std::vector<int> ports_ = {free_port()};
  Values hosts_ = {"127.0.0.1"};
  FallbackExchange fallback_ = [] {
    return Result<std::unique_ptr<Exchange>>(Error{"no fallback"});
  };
};

TEST_F(GroupExchangeTest, EveryRankGetsEveryValueRoundAfterRound) {
  for (const auto& answer : gather({3, 1, 2, 0}, milliseconds(20'000), 20)) {
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(*answer,
              (Values{"rank 0 round 19", "rank 1 round 19", "rank 2 round 19", "rank 3 round 19"}));
  }
}

// The first rank of its node has connected to the other node in time.
TEST_F(GroupExchangeTest, ALateRankIsWaitedForOnEitherNode) {
  for (const int late : {2, 3}) {
    for (const auto& answer : gather({0, 1, 2, 3}, milliseconds(3000), 1, late)) {
      ASSERT_TRUE(answer) << late << ": " << answer.error().message;
      EXPECT_EQ(answer->size(), 4u);
    }
  }
}

TEST_F(GroupExchangeTest, NodesThatDoNotReachEachOtherUseTheFallback) {
  hosts_ = {"127.0.0.2"};
  ports_ = {1};  // privileged, or without a listener
  fallback_ = [] { return Result<std::unique_ptr<Exchange>>(std::make_unique<Fixed>()); };
  for (const auto& answer : gather({1, 2}, milliseconds(1200))) {
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(*answer, Values{"fallback"});
  }
}

TEST_F(GroupExchangeTest, WithoutAFallbackTheErrorContainsBothReasons) {
  for (const auto& answer : gather({1, 2}, milliseconds(1200))) {
    ASSERT_FALSE(answer);
    EXPECT_TRUE(answer.error().message.starts_with(
        "no other node of this job answered within 0.6 s at 127.0.0.1 (cannot"))
        << answer.error().message;
    EXPECT_TRUE(answer.error().message.ends_with("; no fallback")) << answer.error().message;
  }
}

}  // namespace
}  // namespace torchbridge
