#include "trainer_template/runtime/process_group/heartbeat.h"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <atomic>
#include <future>
#include <map>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include "bridge/net/socket.h"

namespace torchbridge::train {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kTimeout{400};

// A rank, and a promise that its on_loss() fulfils.
struct Listener {
  std::promise<void> loss;
  std::atomic<bool> ends_its_wait{false};  // by on_abort()
  std::unique_ptr<Heartbeat> heart;

  bool hang_ups = false;                               // lost at once
  std::atomic<milliseconds> waiting{milliseconds(0)};  // in a collective

  HeartbeatOptions options() {
    HeartbeatOptions all{
        .timeout = kTimeout, .token = "token", .on_loss = [this] { loss.set_value(); }};
    if (!hang_ups) {
      all.waiting = [this] { return waiting.load(); };
      all.on_abort = [this] { ends_its_wait = true; };
    }
    return all;
  }
  std::vector<int> lost() {
    EXPECT_EQ(loss.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
    return heart->lost();
  }
};

// With the default no rank needs to join.
std::unique_ptr<Heartbeat> serve(Listener& listener, int world_size = 100) {
  auto heart = Heartbeat::serve("127.0.0.1", world_size, listener.options());
  EXPECT_TRUE(heart) << heart.error().message;
  return std::move(*heart);
}
std::unique_ptr<Heartbeat> join(Listener& listener, const Endpoint& server, int rank) {
  auto heart = Heartbeat::join(server, rank, listener.options());
  EXPECT_TRUE(heart) << heart.error().message;
  return std::move(*heart);
}

void send_line(const Socket& socket, const std::string& line) {
  EXPECT_EQ(send(socket.descriptor(), line.data(), line.size(), 0),
            static_cast<ssize_t>(line.size()));
}

// Behaves as a stopped process: connects, and sends nothing more.
Socket stopped_rank(const Endpoint& server, int rank) {
  auto socket = connect_to(server, milliseconds(1000));
  EXPECT_TRUE(socket);
  send_line(*socket, "token " + std::to_string(rank) + "\n");
  return std::move(*socket);
}

// Until the other side's kernel has all that was sent.
void wait_until_delivered(const Socket& socket) {
  for (int unacknowledged = 1; unacknowledged > 0; std::this_thread::yield()) {
    ASSERT_EQ(ioctl(socket.descriptor(), SIOCOUTQ, &unacknowledged), 0);
  }
}

TEST(HeartbeatTest, AllRanksLearnWhichRankTimedOut) {
  Listener zero, one;
  zero.heart = serve(zero);
  one.heart = join(one, zero.heart->endpoint(), 1);
  const Socket two = stopped_rank(zero.heart->endpoint(), 2);
  EXPECT_EQ(zero.lost(), std::vector<int>{2});
  EXPECT_EQ(one.lost(), std::vector<int>{2});
}

TEST(HeartbeatTest, AServerThatTimesOutIsRankZero) {
  const Socket server = *listen_on({"127.0.0.1", 0});
  Listener one;
  one.heart = join(one, {"127.0.0.1", *bound_port(server)}, 1);
  EXPECT_EQ(one.lost(), std::vector<int>{0});
}

// All that the other side sends until it hangs up.
std::string received_by(const Socket& socket) {
  std::string text;
  char bytes[256];
  for (ssize_t size = 0; (size = recv(socket.descriptor(), bytes, sizeof bytes, 0)) > 0;)
    text.append(bytes, size);
  return text;
}

// It reads the line when it continues.
TEST(HeartbeatTest, ALostRankIsSentThatItIsLost) {
  Listener zero;
  zero.heart = serve(zero);
  const Socket two = stopped_rank(zero.heart->endpoint(), 2);
  EXPECT_EQ(zero.lost(), std::vector<int>{2});
  zero.heart.reset();
  EXPECT_TRUE(received_by(two).ends_with("lost 2\n"));

  const Socket server = *listen_on({"127.0.0.1", 0});
  Listener one;
  one.heart = join(one, {"127.0.0.1", *bound_port(server)}, 1);
  EXPECT_EQ(one.lost(), std::vector<int>{0});
  one.heart.reset();
  EXPECT_TRUE(
      received_by(Socket(accept(server.descriptor(), nullptr, nullptr))).ends_with("lost 0\n"));
}

// A rank that was slow to join: the others got the line before it connected.
TEST(HeartbeatTest, ARankThatJoinsAfterALossLearnsIt) {
  for (const bool hang_ups : {false, true}) {
    Listener zero{.hang_ups = hang_ups}, two{.hang_ups = hang_ups};
    zero.heart = serve(zero);
    Socket one = stopped_rank(zero.heart->endpoint(), 1);
    if (hang_ups) one = Socket();
    EXPECT_EQ(zero.lost(), std::vector<int>{1});
    two.heart = join(two, zero.heart->endpoint(), 2);
    EXPECT_EQ(two.lost(), std::vector<int>{1});
    EXPECT_EQ(two.heart->hung_up(), hang_ups);
  }
}

TEST(HeartbeatTest, AnAbortKnowsTheRanksThatAbortedBefore) {
  Listener zero;
  zero.heart = serve(zero);
  const Socket one = stopped_rank(zero.heart->endpoint(), 1);
  send_line(one, "broke\n");
  wait_until_delivered(one);
  zero.heart->announce_abort();
  EXPECT_EQ(zero.heart->aborted_ranks(), std::vector<int>{1});
  EXPECT_TRUE(zero.heart->lost().empty());
}

// Else rank 0 would send as many lines as there are pairs of ranks.
TEST(HeartbeatTest, TheOthersAreToldOfAnAbortOnce) {
  Listener zero;
  zero.heart = serve(zero);
  const Endpoint server = zero.heart->endpoint();
  const auto identified_rank = [&](int rank) {
    Socket socket = stopped_rank(server, rank);
    char beat = 0;
    EXPECT_EQ(recv(socket.descriptor(), &beat, 1, 0), 1);
    return socket;
  };
  const Socket one = identified_rank(1);
  for (const int rank : {2, 3}) {
    const Socket other = identified_rank(rank);
    send_line(other, "broke\n");
    wait_until_delivered(other);
  }
  zero.heart->announce_abort();
  EXPECT_EQ(zero.heart->aborted_ranks(), (std::vector<int>{2, 3}));
  const std::string text = received_by(one);
  EXPECT_NE(text.find("aborted\n"), text.npos) << text;
  EXPECT_EQ(text.find("aborted\n"), text.rfind("aborted\n")) << text;
}

// By rank 0, which does not wait itself.
TEST(HeartbeatTest, AnAbortEndsWhatOtherRanksWaitFor) {
  Listener zero, one, two;
  zero.heart = serve(zero);
  one.heart = join(one, zero.heart->endpoint(), 1);
  two.heart = join(two, zero.heart->endpoint(), 2);
  ASSERT_TRUE(one.heart->wait_until_accepted() && two.heart->wait_until_accepted());
  one.waiting = milliseconds(100);
  two.heart->announce_abort();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!one.ends_its_wait && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  EXPECT_TRUE(one.ends_its_wait);
  EXPECT_FALSE(zero.ends_its_wait);
  EXPECT_TRUE(one.heart->lost().empty());
}

TEST(HeartbeatTest, AnAbortIsSentToTheOthers) {
  Listener zero;
  zero.heart = serve(zero);
  const Socket one = stopped_rank(zero.heart->endpoint(), 1);
  wait_until_delivered(one);
  zero.heart->announce_abort();
  zero.heart.reset();
  EXPECT_TRUE(received_by(one).ends_with("broke\n"));
}

TEST(HeartbeatTest, ARankThatEndsAndAnUnknownClientAreNotLost) {
  Listener zero, one, three;
  zero.heart = serve(zero);
  one.heart = join(one, zero.heart->endpoint(), 1);
  one.heart.reset();
  const auto unknown = connect_to(zero.heart->endpoint(), milliseconds(1000));
  ASSERT_TRUE(unknown);
  const std::string garbage(100'000, '\xff');
  send(unknown->descriptor(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
  const auto idle = connect_to(zero.heart->endpoint(), milliseconds(1000));
  // When a stopped rank is lost, the others would have been lost before.
  const Socket two = stopped_rank(zero.heart->endpoint(), 2);
  three.heart = join(three, zero.heart->endpoint(), 3);
  EXPECT_EQ(three.lost(), std::vector<int>{2});
  EXPECT_EQ(zero.lost(), std::vector<int>{2});
}

Socket stranger(const Endpoint& server) {
  auto socket = connect_to(server, milliseconds(1000));
  EXPECT_TRUE(socket);
  return std::move(*socket);
}

// Within `time`; what arrives before is thrown away.
bool is_closed_within(const Socket& socket, milliseconds time) {
  const auto deadline = std::chrono::steady_clock::now() + time;
  char bytes[256];
  for (pollfd ended{socket.descriptor(), POLLIN, 0}; std::chrono::steady_clock::now() < deadline;) {
    if (poll(&ended, 1, 10) > 0 &&
        recv(socket.descriptor(), bytes, sizeof bytes, MSG_DONTWAIT) <= 0)
      return true;
  }
  return false;
}

constexpr milliseconds kLong{20'000};

HeartbeatOptions patient() {
  return {.timeout = kLong, .token = "token", .on_loss = [] {}};
}

TEST(HeartbeatTest, ASlowSenderOfTheTokenIsClosedAfterTheTimeout) {
  Listener zero;
  zero.heart = serve(zero);
  const Socket slow = stranger(zero.heart->endpoint());
  const auto begin = std::chrono::steady_clock::now();
  // A byte in a quarter of the time, of which each began the timeout anew.
  for (const char byte : std::string_view("tokentokentokentokentoken")) {
    send(slow.descriptor(), &byte, 1, MSG_NOSIGNAL);
    if (is_closed_within(slow, kTimeout / 4)) break;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5 * kTimeout);
}

TEST(HeartbeatTest, AWrongTokenIsComparedWhenItIsComplete) {
  auto zero = Heartbeat::serve("127.0.0.1", 100, patient());
  ASSERT_TRUE(zero);
  const Socket part = stranger((*zero)->endpoint()), wrong = stranger((*zero)->endpoint());
  send_line(part, "xxxx");
  send_line(wrong, "tokex");
  EXPECT_TRUE(is_closed_within(wrong, kLong));
  EXPECT_FALSE(is_closed_within(part, milliseconds(100)));
}

TEST(HeartbeatTest, OfManyConnectionsWithoutTheTokenTheOldestAreClosed) {
  constexpr std::size_t kMany = 400, kKept = 256;
  auto zero = Heartbeat::serve("127.0.0.1", 2, patient());
  ASSERT_TRUE(zero);
  std::vector<Socket> strangers;
  while (strangers.size() < kMany) strangers.push_back(stranger((*zero)->endpoint()));
  for (std::size_t i = 0; i < kMany - kKept; ++i)
    ASSERT_TRUE(is_closed_within(strangers[i], kLong)) << i;
  // A rank is accepted nevertheless, and then no stranger is.
  auto one = Heartbeat::join((*zero)->endpoint(), 1, patient());
  ASSERT_TRUE(one) << one.error().message;
  for (const Socket& socket : strangers) ASSERT_TRUE(is_closed_within(socket, kLong));
  EXPECT_FALSE(connect_to((*zero)->endpoint(), milliseconds(1000)));
  EXPECT_TRUE((*zero)->lost().empty());
}

TEST(HeartbeatTest, AnEmptyTokenIsAnError) {
  HeartbeatOptions options = patient();
  options.token.clear();
  EXPECT_FALSE(Heartbeat::serve("127.0.0.1", 2, options));
}

TEST(HeartbeatTest, ARankThatHangsUpIsLostWithHangUps) {
  Listener zero{.hang_ups = true}, one{.hang_ups = true}, two{.hang_ups = true};
  zero.heart = serve(zero);
  one.heart = join(one, zero.heart->endpoint(), 1);
  two.heart = join(two, zero.heart->endpoint(), 2);
  two.heart.reset();
  EXPECT_EQ(zero.lost(), std::vector<int>{2});
  EXPECT_EQ(one.lost(), std::vector<int>{2});
  EXPECT_TRUE(one.heart->hung_up());
}

TEST(HeartbeatTest, ARankThatHangsUpIsLostOnceAnotherHangsInACollective) {
  Listener zero, one, two;
  zero.heart = serve(zero);
  one.heart = join(one, zero.heart->endpoint(), 1);
  two.heart = join(two, zero.heart->endpoint(), 2);
  two.heart.reset();
  zero.waiting = kTimeout;
  EXPECT_EQ(zero.lost(), std::vector<int>{2});
  EXPECT_EQ(one.lost(), std::vector<int>{2});
  EXPECT_TRUE(one.heart->hung_up());
}

TEST(HeartbeatTest, ARankThatLeavesIsNotLost) {
  Listener zero{.hang_ups = true}, one{.hang_ups = true}, two{.hang_ups = true};
  zero.heart = serve(zero);
  one.heart = join(one, zero.heart->endpoint(), 1);
  one.heart->leave();
  one.heart.reset();
  // When another rank is lost, it would have been lost before.
  two.heart = join(two, zero.heart->endpoint(), 2);
  two.heart.reset();
  EXPECT_EQ(zero.lost(), std::vector<int>{2});
}

TEST(HeartbeatTest, AServerThatLeavesIsNotLost) {
  Listener zero{.hang_ups = true}, one{.hang_ups = true};
  zero.heart = serve(zero);
  one.heart = join(one, zero.heart->endpoint(), 1);
  zero.heart->leave();
  zero.heart.reset();
  EXPECT_NE(one.loss.get_future().wait_for(kTimeout), std::future_status::ready);
}

// A killed rank is known on rank 0 although nobody is told of it.
TEST(Heartbeat, KnowsOnRankZeroWhoseConnectionsClosed) {
  Listener zero, one, two;
  zero.heart = serve(zero);
  one.heart = join(one, zero.heart->endpoint(), 1);
  two.heart = join(two, zero.heart->endpoint(), 2);
  Socket killed = stopped_rank(zero.heart->endpoint(), 3);
  wait_until_delivered(killed);
  two.heart->announce_abort();
  one.heart->leave();
  one.heart.reset();
  two.heart.reset();
  killed = Socket();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while ((zero.heart->closed().empty() || zero.heart->aborted_ranks().empty()) &&
         std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  EXPECT_EQ(zero.heart->closed(), std::vector<int>{3});
  EXPECT_EQ(zero.heart->aborted_ranks(), std::vector<int>{2});
  EXPECT_TRUE(zero.heart->lost().empty());
}

using Texts = std::map<int, std::string>;

// Waits for the reports of all ranks under this name.
Texts reports(Heartbeat& heart, const std::string& name) {
  std::optional<Texts> found;
  while (!found) {
    found = heart.take_reports(name);
    std::this_thread::yield();
  }
  return *found;
}

TEST(HeartbeatTest, RankZeroGetsTheReportsOfAllOtherRanks) {
  Listener zero, one, two;
  zero.heart = serve(zero, 3);
  one.heart = join(one, zero.heart->endpoint(), 1);
  two.heart = join(two, zero.heart->endpoint(), 2);
  const std::string large(Heartbeat::kLongestReport, '\n');
  one.heart->report("save 1", large);
  EXPECT_FALSE(zero.heart->take_reports("save 1"));
  two.heart->report("save 1", "");
  EXPECT_EQ(reports(*zero.heart, "save 1"), (Texts{{1, large}, {2, ""}}));
  EXPECT_FALSE(zero.heart->take_reports("save 1"));
  EXPECT_EQ(zero.heart->lost(), std::vector<int>());
}

TEST(HeartbeatTest, AReportReplacesTheOneBefore) {
  Listener zero, one;
  zero.heart = serve(zero, 2);
  one.heart = join(one, zero.heart->endpoint(), 1);
  one.heart->report("save 1", "first");
  one.heart->report("save 2", "second");
  EXPECT_EQ(reports(*zero.heart, "save 2"), (Texts{{1, "second"}}));
  EXPECT_FALSE(zero.heart->take_reports("save 1"));
}

TEST(HeartbeatTest, RankZeroKnowsWhoseReportNeverComes) {
  Listener zero;
  zero.heart = serve(zero);
  for (const int rank : {1, 2}) {
    const Socket ends = stopped_rank(zero.heart->endpoint(), rank);
    if (rank == 1) send_line(ends, "report 4 save\ntext");
  }
  while (zero.heart->closed().size() < 2) std::this_thread::yield();
  EXPECT_EQ(zero.heart->closed_without_report("save"), std::vector<int>{2});
  EXPECT_EQ(zero.heart->closed_without_report("later").size(), 2u);
}

TEST(HeartbeatTest, AReportOfNoSizeOrTooLargeClosesTheConnection) {
  for (const char* line :
       {"report 16777217 save\n", "report -1 save\n", "report 1\n", "report \n"}) {
    Listener zero{.hang_ups = true};
    zero.heart = serve(zero, 2);
    const Socket one = stopped_rank(zero.heart->endpoint(), 1);
    send_line(one, line);
    EXPECT_EQ(zero.lost(), std::vector<int>{1}) << line;
  }
}

// Who has read the token in the store before all ranks have connected.
TEST(HeartbeatTest, ASecondConnectionOfARankIsClosed) {
  Listener zero, one;
  zero.heart = serve(zero, 3);
  one.heart = join(one, zero.heart->endpoint(), 1);
  one.heart->report("save", "text");
  for (const int rank : {1, 3, 900000}) {
    const Socket other = stopped_rank(zero.heart->endpoint(), rank);
    send_line(other, "report 5 save\nother");
    pollfd closed{other.descriptor(), POLLIN, 0};
    char byte = 0;
    while (poll(&closed, 1, -1) < 0 || recv(other.descriptor(), &byte, 1, 0) > 0) continue;
  }
  EXPECT_FALSE(zero.heart->take_reports("save"));
  const Socket two = stopped_rank(zero.heart->endpoint(), 2);
  send_line(two, "report 3 save\ntwo");
  EXPECT_EQ(reports(*zero.heart, "save"), (Texts{{1, "text"}, {2, "two"}}));
}

TEST(HeartbeatTest, ARankKnowsWhetherItsConnectionIsTheOneOfItsRank) {
  auto zero = Heartbeat::serve("127.0.0.1", 3, patient());
  ASSERT_TRUE(zero);
  auto one = Heartbeat::join((*zero)->endpoint(), 1, patient());
  EXPECT_TRUE((*one)->wait_until_accepted());
  auto second = Heartbeat::join((*zero)->endpoint(), 1, patient());
  EXPECT_FALSE((*second)->wait_until_accepted());
  EXPECT_TRUE((*one)->wait_until_accepted());
}

// It is sent nothing, so that a rank cannot take it for an answer.
TEST(HeartbeatTest, AConnectionWithoutARankIsSentNoHeartbeat) {
  Listener zero;
  zero.heart = serve(zero, 3);
  const Socket silent = stranger(zero.heart->endpoint());
  EXPECT_EQ(received_by(silent), "");
}

// With a timeout of zero.
TEST(HeartbeatTest, WithoutHeartbeatsReportsComeAndNoRankIsLost) {
  Listener zero, one;
  const auto without = [](Listener& listener) {
    HeartbeatOptions options = listener.options();
    options.timeout = milliseconds(0);
    return options;
  };
  zero.heart = std::move(*Heartbeat::serve("127.0.0.1", 3, without(zero)));
  one.heart = std::move(*Heartbeat::join(zero.heart->endpoint(), 1, without(one)));
  Socket two = stopped_rank(zero.heart->endpoint(), 2);
  send_line(two, "report 5 save\nother");
  two = Socket();
  while (zero.heart->closed().empty()) std::this_thread::yield();
  one.heart->report("save", "text");
  EXPECT_EQ(reports(*zero.heart, "save"), (Texts{{1, "text"}, {2, "other"}}));
  EXPECT_EQ(zero.heart->lost(), std::vector<int>());
}

// Here a rank that is stopped, and one whose process was killed before.
TEST(HeartbeatTest, WithoutHeartbeatsARankIsLostOnceTheRunIsToStop) {
  for (const bool is_closed : {false, true}) {
    Listener zero;
    std::atomic<bool> is_stopping = false;
    HeartbeatOptions options = zero.options();
    options.timeout = milliseconds(0);
    options.is_stopping = [&] { return is_stopping.load(); };
    options.stop_timeout = kTimeout;
    zero.heart = std::move(*Heartbeat::serve("127.0.0.1", 3, options));
    zero.waiting = kTimeout;
    Socket two = stopped_rank(zero.heart->endpoint(), 2);
    if (is_closed) two = Socket();
    while (is_closed && zero.heart->closed().empty()) std::this_thread::yield();
    EXPECT_EQ(zero.heart->lost(), std::vector<int>());
    is_stopping = true;
    EXPECT_EQ(zero.lost(), std::vector<int>{2});
    EXPECT_EQ(zero.heart->hung_up(), is_closed);
  }
}

}  // namespace
}  // namespace torchbridge::train
