// Ranks as threads of this process: the socket does not care.
#include <torchbridge/exchange/exchange.h>

#include <unistd.h>

#include <thread>

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

using std::chrono::milliseconds;
using Answers = std::vector<Result<std::vector<std::string>>>;

std::string unique_key() { return "test " + std::to_string(getpid()) + " " + testing::UnitTest::GetInstance()->current_test_info()->name(); }

Answers meet(const std::vector<int>& ranks, int world_size, milliseconds timeout, int rounds = 1) {
  Answers answers(ranks.size(), Error{"none"});
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < rounds; ++round) {
        const std::string value = "rank " + std::to_string(ranks[i]) + " round " + std::to_string(round);
        answers[i] = meet_on_node(unique_key(), ranks[i], world_size)->all_gather(value, timeout);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return answers;
}

TEST(NodeExchange, EveryRankGetsEveryValue) {
  for (const auto& answer : meet({2, 0, 3, 1}, 4, milliseconds(10000))) {
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(*answer, (std::vector<std::string>{"rank 0 round 0", "rank 1 round 0", "rank 2 round 0", "rank 3 round 0"}));
  }
}

TEST(NodeExchange, RoundsOneAfterTheOtherDoNotMix) {
  for (const auto& answer : meet({0, 1, 2}, 3, milliseconds(20000), 50)) {
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(*answer, (std::vector<std::string>{"rank 0 round 49", "rank 1 round 49", "rank 2 round 49"}));
  }
}

TEST(NodeExchange, NamesTheRanksThatDidNotCome) {
  const auto answers = meet({0, 2}, 4, milliseconds(300));
  ASSERT_FALSE(answers[0]);
  EXPECT_EQ(answers[0].error().message, "2 of 4 ranks did not come within 0.3 s (1, 3): does every rank run this program?");
  ASSERT_FALSE(answers[1]);
  EXPECT_EQ(answers[1].error().message,
            "rank 0, on this node, did not answer within 0.3 s: does every rank run this program, and do all share one network namespace?");
}

TEST(NodeExchange, OneRankIsAlone) {
  const auto answers = meet({0}, 1, milliseconds(1000));
  ASSERT_TRUE(answers[0]) << answers[0].error().message;
  EXPECT_EQ(answers[0]->size(), 1u);
}

}  // namespace
}  // namespace torchbridge
