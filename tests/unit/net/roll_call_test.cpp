#include <torchbridge/net/roll_call.h>

#include <sys/socket.h>

#include <future>
#include <thread>

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

using std::chrono::milliseconds;

class RollCallTest : public ::testing::Test {
 protected:
  RollCallTest() : listener_(*listen_on({"127.0.0.1", 0})), at_{"127.0.0.1", *bound_port(listener_)} {}

  std::future<Result<std::string>> calls(int node, const std::string& text, RollCall roll) {
    return std::async(std::launch::async, [=, this] { return answer_roll(at_, roll, node, text); });
  }

  const RollCall roll_{.token = "slurm-1.0", .nodes = {"n0", "n1", "n2"}, .master = 1, .timeout = milliseconds(20'000)};
  Socket listener_;
  Endpoint at_;
};

TEST_F(RollCallTest, TellsTheMasterAndAnswersAll) {
  auto first = calls(0, "from n0", roll_);
  auto third = calls(2, std::string(kMaxRollText, 'x'), roll_);
  auto roll = Roll::take(listener_, roll_);
  ASSERT_TRUE(roll) << roll.error().message;
  EXPECT_EQ(roll->texts(), (std::vector<std::string>{"from n0", "", std::string(kMaxRollText, 'x')}));
  roll->answer("welcome");
  EXPECT_EQ(*first.get(), "welcome");
  EXPECT_EQ(*third.get(), "welcome");
}

TEST_F(RollCallTest, NamesTheNodesThatDoNotCall) {
  RollCall impatient = roll_;
  impatient.timeout = milliseconds(200);
  auto first = calls(0, "here", impatient);
  const auto roll = Roll::take(listener_, impatient);
  ASSERT_FALSE(roll);
  EXPECT_EQ(roll.error().message, "no word within 200 ms from n2: is n1 reachable from there?");
  EXPECT_EQ(*first.get(), kRollIncomplete);
}

TEST_F(RollCallTest, TellsOnceForWhomItStillWaits) {
  RollCall waiting = roll_;
  waiting.patience = milliseconds(50);
  std::vector<std::string> told;
  std::promise<void> noticed;
  waiting.missing = [&](const std::string& nodes) {
    told.push_back(nodes);
    noticed.set_value();
  };
  auto first = calls(0, "a", roll_);
  auto third = std::async(std::launch::async, [&] {
    noticed.get_future().wait();
    return answer_roll(at_, roll_, 2, "late");
  });
  auto roll = Roll::take(listener_, waiting);
  ASSERT_TRUE(roll) << roll.error().message;
  roll->answer("ok");
  EXPECT_TRUE(first.get());
  EXPECT_TRUE(third.get());
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(told[0] == "n2" || told[0] == "n0, n2") << told[0];
}

TEST_F(RollCallTest, IgnoresStrangersAndOtherRuns) {
  RollCall other = roll_;
  other.token = "slurm-2.0";
  other.timeout = milliseconds(200);
  auto other_run = calls(0, "wrong run", other);
  const auto stranger = connect_to(at_, milliseconds(1000));
  ASSERT_TRUE(stranger);
  ASSERT_GT(send(stranger->descriptor(), "GET / HTTP/1.0\r\n\r\n", 18, 0), 0);
  auto first = calls(0, "a", roll_);
  auto third = calls(2, "b", roll_);
  auto roll = Roll::take(listener_, roll_);
  ASSERT_TRUE(roll) << roll.error().message;
  EXPECT_EQ(roll->texts()[0], "a");
  roll->answer("ok");
  EXPECT_TRUE(first.get());
  EXPECT_TRUE(third.get());
  EXPECT_FALSE(other_run.get());
}

// Listens, and gives each of `callers` that connect `answer`; nothing where it is empty.
class OtherProgram {
 public:
  OtherProgram(int callers, std::string answer)
      : listener_(*listen_on({"127.0.0.1", 0})), thread_([this, callers, answer = std::move(answer)] {
          for (int i = 0; i < callers; ++i) {
            connections_.emplace_back(accept(listener_.descriptor(), nullptr, nullptr));
            send(connections_.back().descriptor(), answer.data(), answer.size(), MSG_NOSIGNAL);
            if (!answer.empty()) connections_.pop_back();
          }
        }) {}
  ~OtherProgram() { thread_.join(); }
  Endpoint place() const { return {"127.0.0.1", *bound_port(listener_)}; }

 private:
  Socket listener_;
  std::vector<Socket> connections_;
  std::thread thread_;
};

TEST_F(RollCallTest, AnotherProgramsAnswerIsNotTheMasters) {
  RollCall impatient = roll_;
  impatient.timeout = milliseconds(200);
  for (const char* answer : {"HTTP/1.0 400 Bad Request\r\n\r\n", "torchbridge-roll slurm-2.0\nall here", "all here"}) {
    const OtherProgram other(1, answer);
    const auto heard = answer_roll(other.place(), impatient, 2, "");
    ASSERT_FALSE(heard) << answer << ": " << *heard;
  }
}

TEST_F(RollCallTest, FindsTheMasterElsewhere) {
  for (const char* answer : {"", "HTTP/1.0 400 Bad Request\r\n\r\n"}) {
    const OtherProgram at_its_place(2, answer), at_the_next(2, "");
    RollCall roll = roll_;
    roll.elsewhere = [&] { return std::vector{at_the_next.place(), at_}; };
    const auto calls = [&](int node) { return std::async(std::launch::async, [&, node] { return answer_roll(at_its_place.place(), roll, node, "x"); }); };
    auto first = calls(0), third = calls(2);
    auto taken = Roll::take(listener_, roll);
    ASSERT_TRUE(taken) << taken.error().message;
    taken->answer("some failed");
    EXPECT_EQ(*first.get(), "some failed");
    EXPECT_EQ(*third.get(), "some failed");
  }
}

TEST_F(RollCallTest, TheMasterListensAtTheFirstPlaceThatIsFree) {
  const OtherProgram other(0, "");
  RollCall roll = roll_;
  EXPECT_FALSE(listen_elsewhere(roll));
  roll.elsewhere = [&] { return std::vector{other.place(), Endpoint{"127.0.0.1", 0}}; };
  const auto listener = listen_elsewhere(roll);
  ASSERT_TRUE(listener) << listener.error().message;
  EXPECT_NE(*bound_port(*listener), other.place().port);
}

TEST_F(RollCallTest, SaysWhyTheMasterIsNotReached) {
  RollCall impatient = roll_;
  impatient.timeout = milliseconds(100);
  Endpoint nobody{"127.0.0.1", 0};
  {
    const Socket taken = *listen_on(nobody);
    nobody.port = *bound_port(taken);
  }
  const auto answer = answer_roll(nobody, impatient, 2, "");
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().message, "node n2 does not reach the node of rank 0, n1: cannot connect to 127.0.0.1 port " +
                                        std::to_string(nobody.port) + ": Connection refused");
}

}  // namespace
}  // namespace torchbridge
