// Nodes as threads, each on a loopback address of its own.
#include <torchbridge/net/gathering.h>

#include <sys/socket.h>

#include <future>

#include <gtest/gtest.h>

#include <torchbridge/net/socket.h>

#include "free_port.h"

namespace torchbridge {
namespace {

using std::chrono::milliseconds;
using Values = std::vector<std::string>;

class GatheringTest : public ::testing::Test {
 protected:
  GatheringTest() {
    job_.secret = {11, 22};
    job_.job = "77";
    job_.world_size = 4;
    job_.ports = {free_port(), free_port()};
    job_.timeout = job_.patience = milliseconds(20'000);
  }

  Gathering listener() const {
    Gathering node = job_;
    node.listens = true;
    return node;
  }
  Gathering caller(Values first, Values other = {}) const {
    Gathering node = job_;
    node.first_places = std::move(first);
    node.other_places = std::move(other);
    return node;
  }
  static Gathering impatient(Gathering node, milliseconds timeout) {
    node.timeout = node.patience = timeout;
    return node;
  }
  static std::future<Result<Gathered>> starts(Gathering node, std::vector<int> ranks) {
    return std::async(std::launch::async, [node, ranks] {
      std::map<int, std::string> own;
      for (const int rank : ranks) own[rank] = "rank " + std::to_string(rank);
      return gather(node, own);
    });
  }
  static void expect_all(std::future<Result<Gathered>>& node) {
    const auto gathered = node.get();
    ASSERT_TRUE(gathered) << gathered.error().message;
    EXPECT_EQ(gathered->values, (Values{"rank 0", "rank 1", "rank 2", "rank 3"})) << gathered->nobody;
  }

  Gathering job_;
};

TEST_F(GatheringTest, AllHearOfAll) {
  auto second = starts(caller({"127.0.0.1"}), {3});
  auto third = starts(caller({"127.0.0.1"}), {1});
  auto first = starts(listener(), {0, 2});
  for (auto* node : {&first, &second, &third}) expect_all(*node);
}

// mpirun's host has no rank, or its name leads nowhere: the list of nodes does.
TEST_F(GatheringTest, OtherPlacesAreTriedWhereTheFirstIsEmpty) {
  auto first = starts(caller({"192.0.2.1", "no-such-host.invalid"}, {"no-such-host.invalid", "127.0.0.1"}), {1, 2, 3});
  auto second = starts(listener(), {0});
  for (auto* node : {&first, &second}) expect_all(*node);
}

TEST_F(GatheringTest, APortThatIsTakenIsPassedOver) {
  const auto stranger = listen_on({"0.0.0.0", job_.ports[0]});  // accepts, and says nothing
  ASSERT_TRUE(stranger);
  auto first = starts(listener(), {0, 1});
  auto second = starts(caller({"127.0.0.1"}), {2, 3});
  for (auto* node : {&first, &second}) expect_all(*node);
}

TEST_F(GatheringTest, StrangersAreNotBelieved) {
  Gathering other_secret = caller({"127.0.0.1"}), other_job = other_secret;
  other_secret.patience = other_job.patience = milliseconds(300);
  other_secret.secret = {11, 23};
  other_job.job = "78";
  auto first = starts(listener(), {0, 1});
  auto thief = starts(other_secret, {2, 3}), neighbour = starts(other_job, {2, 3});
  for (auto* node : {&thief, &neighbour}) {
    const auto gathered = node->get();
    ASSERT_TRUE(gathered) << gathered.error().message;
    EXPECT_EQ(gathered->values, Values{});
  }
  const auto talker = connect_to({"127.0.0.1", job_.ports[0]}, milliseconds(1000));
  ASSERT_TRUE(talker);
  ASSERT_GT(send(talker->descriptor(), "torchbridge call 0000000000000000 999999999\n", 44, 0), 0);
  auto second = starts(caller({"127.0.0.1"}), {2, 3});
  for (auto* node : {&first, &second}) expect_all(*node);
}

TEST_F(GatheringTest, EveryNodeIsToldWhoDidNotCome) {
  auto first = starts(impatient(listener(), milliseconds(500)), {0});
  auto second = starts(impatient(caller({"127.0.0.1"}), milliseconds(500)), {2});
  for (auto* node : {&first, &second}) {
    const auto gathered = node->get();
    ASSERT_FALSE(gathered);
    EXPECT_EQ(gathered.error().message, "2 of 4 ranks did not come within 0.5 s (1, 3): does every rank run this program?");
  }
}

TEST_F(GatheringTest, NobodyIsSaidToBeNobody) {
  Gathering node = caller({"127.0.0.1"}, {"no-such-host.invalid"});
  node.patience = milliseconds(200);
  const auto gathered = gather(node, {{1, "rank 1"}});
  ASSERT_TRUE(gathered) << gathered.error().message;
  EXPECT_EQ(gathered->values, Values{});
  EXPECT_EQ(gathered->nobody,
            "no other node of this job was heard of within 0.2 s at 127.0.0.1, no-such-host.invalid (has no address), port " +
                std::to_string(job_.ports[0]));
}

}  // namespace
}  // namespace torchbridge
