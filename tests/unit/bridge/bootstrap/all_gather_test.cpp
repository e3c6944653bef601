// Ranks as threads of this process: a node is another key of the unix sockets, and another address
// on loopback.
#include "bridge/bootstrap/all_gather.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <future>

#include <gtest/gtest.h>

#include "bridge/base/hex_text.h"
#include "bridge/base/hmac_sha256.h"
#include "bridge/net/socket.h"
#include "tests/support/free_port.h"
#include "tests/support/other_user.h"

namespace torchbridge {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLong{20'000}, kShort{500};

std::string name_of_test() {
  return std::to_string(getpid()) + " " +
         testing::UnitTest::GetInstance()->current_test_info()->name();
}

class OneNode : public ::testing::Test {
 protected:
  static BootstrapGroup member(int rank, int size) {
    const std::string key = name_of_test();
    return {.job = key,
            .rank = rank,
            .size = size,
            .node_key = key,
            .local_rank = rank,
            .local_size = size};
  }
  static std::vector<Result<Gathered>> gather(const std::vector<int>& ranks, int size,
                                              milliseconds timeout, int rounds = 1) {
    std::vector<std::future<Result<Gathered>>> running;
    for (const int rank : ranks) {
      running.push_back(std::async(std::launch::async, [=] {
        Result<Gathered> last = Error{"none"};
        for (int round = 0; round < rounds; ++round) {
          last = all_gather(member(rank, size),
                            "rank " + std::to_string(rank) + " round " + std::to_string(round),
                            timeout);
        }
        return last;
      }));
    }
    std::vector<Result<Gathered>> gathered;
    for (auto& rank : running) gathered.push_back(rank.get());
    return gathered;
  }
};

TEST_F(OneNode, EveryRankGetsEveryValue) {
  for (const auto& rank : gather({2, 0, 3, 1}, 4, kLong)) {
    ASSERT_TRUE(rank) << rank.error().message;
    EXPECT_EQ(rank->values,
              (Values{"rank 0 round 0", "rank 1 round 0", "rank 2 round 0", "rank 3 round 0"}));
  }
}

TEST_F(OneNode, ConsecutiveRoundsDoNotMix) {
  for (const auto& rank : gather({0, 1, 2}, 3, kLong, 50)) {
    ASSERT_TRUE(rank) << rank.error().message;
    EXPECT_EQ(rank->values, (Values{"rank 0 round 49", "rank 1 round 49", "rank 2 round 49"}));
  }
}

// One who can compute the key, as where the group has no secret.
TEST_F(OneNode, NamesThatAnotherUserHasArePassedOver) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  const BootstrapGroup group = member(0, 3);
  const std::string key = name_on_node(group);
  for (const bool listens : {true, false}) {
    const Child attacker([&] { return take_as_nobody(key, 20, listens); });
    for (const auto& rank : gather({2, 1, 0}, 3, kLong)) {
      ASSERT_TRUE(rank) << rank.error().message;
      EXPECT_EQ(rank->values, (Values{"rank 0 round 0", "rank 1 round 0", "rank 2 round 0"}));
    }
  }
}

TEST_F(OneNode, NamesCannotBeTakenByAnotherUserWithoutTheSecret) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  constexpr int kAllNames = 64;
  BootstrapGroup first = member(0, 2), second = member(1, 2);
  const Child attacker([&] { return take_as_nobody(name_on_node(first), kAllNames, true); });
  EXPECT_FALSE(all_gather(first, "first", kShort))
      << "without a secret the names follow from the key";
  first.secret = second.secret = group_secret("a token of the job");
  auto other = std::async(std::launch::async, [&] { return all_gather(second, "second", kLong); });
  const auto gathered = all_gather(first, "first", kLong);
  ASSERT_TRUE(gathered) << gathered.error().message;
  EXPECT_EQ(gathered->values, (Values{"first", "second"}));
  EXPECT_TRUE(other.get());
}

TEST_F(OneNode, EveryRankGetsTheMissingRanks) {
  for (const auto& rank : gather({0, 2}, 4, kShort)) {
    ASSERT_FALSE(rank);
    EXPECT_EQ(rank.error().message,
              "2 of 4 ranks did not arrive within 0.5 s (1, 3): does every rank run this program?");
  }
}

TEST_F(OneNode, ReportsThatItsFirstRankDidNotArrive) {
  const auto gathered = gather({1}, 2, milliseconds(300));
  ASSERT_FALSE(gathered[0]);
  EXPECT_EQ(gathered[0].error().message,
            "the first rank of this node did not answer within 0.3 s: does every rank run this "
            "program, in one network namespace?");
}

TEST_F(OneNode, OneRankIsAlone) {
  const auto gathered = gather({0}, 1, kShort);
  ASSERT_TRUE(gathered[0]) << gathered[0].error().message;
  EXPECT_EQ(gathered[0]->values.size(), 1u);
}

TEST_F(OneNode, AllGetTheReducedValues) {
  for (const bool fails : {false, true}) {
    const Reduce reduce = [&](const Values& values) -> Result<Values> {
      if (fails) return Error{"no sense in " + values[1]};
      return Values{values[0] + "+" + values[1]};
    };
    auto second = std::async(std::launch::async,
                             [&] { return all_gather(member(1, 2), "b", kLong, reduce); });
    const auto first = all_gather(member(0, 2), "a", kLong, reduce);
    for (const auto& rank : {first, second.get()}) {
      ASSERT_EQ(static_cast<bool>(rank), !fails);
      if (fails)
        EXPECT_EQ(rank.error().message, "no sense in b");
      else
        EXPECT_EQ(rank->values, Values{"a+b"});
    }
  }
}

// Ranks 0 and 3 on the first node, which listens, 1 and 2 on the second.
class TwoNodes : public ::testing::Test {
 protected:
  BootstrapGroup member(int rank) const {
    const bool first = rank == 0 || rank == 3;
    return {
        .job = name_of_test(),
        .secret = "secret",
        .rank = rank,
        .size = 4,
        .node_key = name_of_test() + (first ? " first" : " second"),
        .local_rank = rank >= 2 ? 1 : 0,
        .local_size = 2,
        .listens = first,
        .ports = ports_,
        .first_hosts = first ? std::vector<std::string>() : std::vector<std::string>{"127.0.0.1"}};
  }
  static std::future<Result<Gathered>> starts(BootstrapGroup group, milliseconds timeout = kLong) {
    return std::async(std::launch::async, [=] {
      return all_gather(group, "rank " + std::to_string(group.rank), timeout);
    });
  }
  // The second node's first rank, with other hosts to connect to.
  BootstrapGroup caller(std::vector<std::string> first_hosts,
                        std::vector<std::string> other_hosts = {}) const {
    BootstrapGroup group = member(1);
    group.first_hosts = std::move(first_hosts);
    group.other_hosts = std::move(other_hosts);
    return group;
  }
  static void expect_all(std::vector<std::future<Result<Gathered>>> ranks) {
    for (auto& rank : ranks) {
      const auto gathered = rank.get();
      ASSERT_TRUE(gathered) << gathered.error().message;
      EXPECT_EQ(gathered->values, (Values{"rank 0", "rank 1", "rank 2", "rank 3"}))
          << gathered->unreached;
    }
  }
  template <class... Futures>
  static std::vector<std::future<Result<Gathered>>> all(Futures... futures) {
    std::vector<std::future<Result<Gathered>>> list;
    (list.push_back(std::move(futures)), ...);
    return list;
  }

  std::vector<int> ports_ = {free_port(), free_port()};
};

TEST_F(TwoNodes, EveryRankGetsEveryValue) {
  expect_all(all(starts(member(3)), starts(member(1)), starts(member(2)), starts(member(0))));
}

// mpirun's host has no rank, or its name does not resolve: the list of nodes has a listener.
TEST_F(TwoNodes, OtherHostsAreTriedWhereTheFirstHasNoListener) {
  const BootstrapGroup calls =
      caller({"192.0.2.1", "no-such-host.invalid"}, {"no-such-host.invalid", "127.0.0.1"});
  expect_all(all(starts(member(0)), starts(calls), starts(member(2)), starts(member(3))));
}

TEST_F(TwoNodes, TheNodeOfTheListeningRankListens) {
  std::vector<std::future<Result<Gathered>>> ranks;
  for (const int rank : {0, 1, 2, 3}) {
    BootstrapGroup group = member(rank);
    group.listens = false;
    group.listening_rank = 3;  // not the first of its node
    ranks.push_back(starts(group));
  }
  expect_all(std::move(ranks));
}

TEST_F(TwoNodes, APortInUseIsSkipped) {
  const auto stranger = listen_on({"0.0.0.0", ports_[0]});  // accepts, and sends nothing
  ASSERT_TRUE(stranger);
  expect_all(all(starts(member(0)), starts(member(1)), starts(member(2)), starts(member(3))));
}

TEST_F(TwoNodes, ProcessesWithoutTheSecretAreIgnored) {
  BootstrapGroup other_secret = caller({"127.0.0.1"}), other_job = other_secret;
  other_secret.local_size = other_job.local_size = 1;
  other_secret.connect_timeout = other_job.connect_timeout = milliseconds(300);
  other_secret.secret = "another";
  other_job.job = "78";
  auto first = starts(member(0)), fourth = starts(member(3));
  for (const auto& group : {other_secret, other_job}) {
    const auto gathered = starts(group).get();
    ASSERT_TRUE(gathered) << gathered.error().message;
    EXPECT_EQ(gathered->values, Values{});
    EXPECT_NE(gathered->unreached, "");
  }
  const auto talker = connect_to({"127.0.0.1", ports_[0]}, milliseconds(1000));
  ASSERT_TRUE(talker);
  const std::string_view kFalse = "torchbridge values 9 0000000000000000 0000000000000000\n";
  ASSERT_GT(send(talker->descriptor(), kFalse.data(), kFalse.size(), 0), 0);
  expect_all(all(std::move(first), std::move(fourth), starts(member(1)), starts(member(2))));
}

// Only the first rank of a node tells the others of it that no other node answered.
TEST_F(TwoNodes, ALineThatAnotherNodeSendsIsNotShown) {
  const auto listener = listen_on({"127.0.0.1", ports_[0]});
  ASSERT_TRUE(listener);
  BootstrapGroup group = caller({"127.0.0.1"});
  group.local_size = 1;
  group.connect_timeout = milliseconds(300);
  auto second = starts(group);
  const Socket peer(accept(listener->descriptor(), nullptr, nullptr));
  const std::string line = "\x1b[2Ja false line";
  const auto proof = [&](const std::string& kind, const std::string& body) {
    return hex_of(hmac_sha256(group.secret, group.job + "\n" + kind + "\n" + body));
  };
  const std::string length = std::to_string(line.size());
  const std::string message = "torchbridge unreached " + length + " " +
                              proof("head unreached", length) + " " + proof("unreached", line) +
                              "\n" + line;
  ASSERT_GT(send(peer.descriptor(), message.data(), message.size(), MSG_NOSIGNAL), 0);
  const auto gathered = second.get();
  ASSERT_TRUE(gathered) << gathered.error().message;
  EXPECT_TRUE(gathered->unreached.starts_with("no other node of this job answered within"))
      << gathered->unreached;
}

bool is_closed(const Socket& socket) {
  pollfd ready{socket.descriptor(), POLLIN, 0};
  char byte = 0;
  return poll(&ready, 1, 10'000) == 1 && recv(socket.descriptor(), &byte, 1, 0) <= 0;
}

// What others send is not kept: a header without a proof ends the connection before its body has
// come, and of many silent ones the oldest are closed.
TEST_F(TwoNodes, ManyStrangersDoNotKeepTheRanksApart) {
  auto first = starts(member(0)), fourth = starts(member(3));
  const auto stranger = [&] {
    auto socket = connect_to({"127.0.0.1", ports_[0]}, milliseconds(100));
    while (!socket) socket = connect_to({"127.0.0.1", ports_[0]}, milliseconds(100));
    return std::move(*socket);
  };
  const Socket talker = stranger();
  const std::string_view kBody = "torchbridge values 3000 0000000000000000 0000000000000000\n";
  ASSERT_GT(send(talker.descriptor(), kBody.data(), kBody.size(), MSG_NOSIGNAL), 0);
  EXPECT_TRUE(is_closed(talker));
  std::vector<Socket> silent;
  for (int i = 0; i < 400; ++i) silent.push_back(stranger());
  EXPECT_TRUE(is_closed(silent.front()));
  expect_all(all(std::move(first), std::move(fourth), starts(member(1)), starts(member(2))));
}

// Others connect faster than they are accepted.
TEST_F(TwoNodes, AFloodOfConnectionsDoesNotMoveTheDeadline) {
  std::atomic<bool> goes_on = true;
  std::vector<std::future<void>> flood;
  for (int i = 0; i < 6; ++i) {
    flood.push_back(std::async(std::launch::async, [&] {
      while (goes_on) (void)!connect_to({"127.0.0.1", ports_[0]}, milliseconds(100));
    }));
  }
  auto first = starts(member(0), kShort);
  EXPECT_EQ(first.wait_for(milliseconds(10'000)), std::future_status::ready);
  goes_on = false;
  for (auto& one : flood) one.get();
  EXPECT_FALSE(first.get());
}

TEST_F(TwoNodes, EveryRankGetsTheMissingRanks) {
  auto first = starts(member(0), kShort), fourth = starts(member(3), kShort),
       second = starts(member(1), kShort);
  for (auto* rank : {&first, &fourth, &second}) {
    const auto gathered = rank->get();
    ASSERT_FALSE(gathered);
    EXPECT_EQ(gathered.error().message,
              "1 of 4 ranks did not arrive within 0.5 s (2): does every rank run this program?");
  }
}

// It times out before the last rank arrives, and would not get the answer.
TEST_F(TwoNodes, ARankThatClosesItsConnectionIsNotCounted) {
  const auto of_three = [&](int rank) {
    BootstrapGroup group = member(rank);
    group.size = 3;
    group.local_size = 1;
    group.local_rank = 0;
    return group;
  };
  auto first = starts(of_three(0), milliseconds(4000));
  EXPECT_FALSE(starts(of_three(1), milliseconds(300)).get());
  auto third = starts(of_three(2), milliseconds(4000));
  for (auto* rank : {&first, &third}) {
    const auto gathered = rank->get();
    ASSERT_FALSE(gathered);
    EXPECT_EQ(gathered.error().message,
              "1 of 3 ranks did not arrive within 4 s (1): does every rank run this program?");
  }
}

TEST_F(TwoNodes, TheCallerMayNameTheMissingRanks) {
  BootstrapGroup group = member(0);
  group.missing = [](const std::vector<bool>& arrived) {
    return arrived[1] ? "all there" : "n1 is missing";
  };
  const auto gathered = starts(group, kShort).get();
  ASSERT_FALSE(gathered);
  EXPECT_EQ(gathered.error().message, "n1 is missing");
}

// Both ranks of the second node get the error. It contains the reason for each host.
TEST_F(TwoNodes, AnUnreachedGroupIsReportedWithTheReasons) {
  BootstrapGroup group = caller({"127.0.0.1"}, {"no-such-host.invalid"});
  group.connect_timeout = milliseconds(200);
  auto second = starts(group), third = starts(member(2));
  for (auto* rank : {&second, &third}) {
    const auto gathered = rank->get();
    ASSERT_TRUE(gathered) << gathered.error().message;
    EXPECT_EQ(gathered->values, Values{});
    EXPECT_TRUE(gathered->unreached.starts_with(
        "no other node of this job answered within 0.2 s at 127.0.0.1 (cannot connect to "
        "127.0.0.1 port "))
        << gathered->unreached;
    EXPECT_NE(gathered->unreached.find(", no-such-host.invalid ("), std::string::npos)
        << gathered->unreached;
  }
}

// As with names that are cut at the dot: neither the listener nor the other node waits.
TEST_F(TwoNodes, AGroupWithoutAddressesIsUnreachedAtOnce) {
  std::vector<std::future<Result<Gathered>>> ranks;
  for (const int rank : {0, 1, 2, 3}) {
    BootstrapGroup group = member(rank);
    group.needs_other_hosts = true;
    group.first_hosts = {};
    group.other_hosts = {"no-such-host.invalid"};
    ranks.push_back(starts(group));
  }
  for (auto& rank : ranks) {
    const auto gathered = rank.get();
    ASSERT_TRUE(gathered) << gathered.error().message;
    EXPECT_TRUE(gathered->unreached.starts_with(
        "no other node of this job has an address: host name 'no-such-host.invalid'"))
        << gathered->unreached;
  }
}

}  // namespace
}  // namespace torchbridge
