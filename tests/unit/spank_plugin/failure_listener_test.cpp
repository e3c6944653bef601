#include "spank_plugin/failure_listener.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <ctime>
#include <future>

#include <gtest/gtest.h>

#include "bridge/base/hex_text.h"
#include "bridge/base/hmac_sha256.h"
#include "bridge/net/random_token.h"

namespace torchbridge {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;
using Kind = StepReport::Kind;

const std::string kSecret(kTokenSize, 'a'), kKey = report_key(kSecret);

// As a node sends it.
std::string message_of(const std::string& content) {
  return hex_of(hmac_sha256(kKey, content)) + content;
}

const std::chrono::system_clock::time_point kNow{seconds(1'700'000'000)};

class FailureListenerTest : public ::testing::Test {
 protected:
  FailureListenerTest() { open(); }

  void open() {
    listener_ = FailureListener::open(kKey);
    if (!listener_) throw std::runtime_error("cannot listen");
    address_ = {"127.0.0.1", listener_->port(), kKey};
  }

  // `states`: what Slurm answers, the last one again and again.
  void start(std::optional<milliseconds> on_failure = {},
             std::vector<StepState> states = {StepState::kRuns}) {
    listener_->start(
        {.log = [this](const std::string& text) { logged_ += text + ";"; },
         .end_step = [this] { ++ended_; },
         .time_after_failure = on_failure,
         .while_saving = while_saving_,
         .state = [this,
                   states] { return states[std::min<std::size_t>(asked_++, states.size() - 1)]; }});
  }

  // False where the listener has not come to that within five seconds.
  static bool reaches(const std::atomic<int>& count, int value) {
    const auto deadline = Clock::now() + seconds(5);
    while (count != value && Clock::now() < deadline) poll(nullptr, 0, 5);
    return count == value;
  }

  Socket connection() const {
    auto socket = connect_to({address_.host, address_.port}, seconds(5));
    if (!socket) throw std::runtime_error(socket.error().message);
    return std::move(*socket);
  }

  Socket sent(const std::string& message) const {
    auto socket = connection();
    if (send(socket.descriptor(), message.data(), message.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(message.size()))
      throw std::runtime_error("not sent");
    shutdown(socket.descriptor(), SHUT_WR);
    return socket;
  }

  std::unique_ptr<FailureListener> listener_;
  FailureListenerAddress address_;
  milliseconds while_saving_ = std::chrono::hours(1);
  std::string logged_;  // written by the threads that stop() joins
  std::atomic<int> ended_ = 0, asked_ = 0;
};

void send_text(const Socket& socket, const std::string& text) {
  ASSERT_EQ(send(socket.descriptor(), text.data(), text.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(text.size()));
}

std::string answer_to(const Socket& report) {
  char answer = 0;
  return recv(report.descriptor(), &answer, 1, 0) == 1 ? std::string(1, answer) : "";
}

// The time until srun closes the connection, without an answer.
milliseconds time_until_closed(const Socket& socket) {
  const auto start = Clock::now();
  char byte;
  EXPECT_LE(recv(socket.descriptor(), &byte, 1, 0), 0);
  return std::chrono::duration_cast<milliseconds>(Clock::now() - start);
}

TEST_F(FailureListenerTest, ReturnsTheEarliestEnd) {
  start();
  ASSERT_TRUE(send_report(address_, {Kind::kTaskEnded, kNow, "rank 2"}));
  ASSERT_TRUE(send_report(
      address_, {Kind::kTaskEnded, kNow - std::chrono::microseconds(1), "rank 3\nreason"}));
  ASSERT_TRUE(send_report(address_, {Kind::kTaskEnded, kNow + milliseconds(1), "rank 1"}));
  EXPECT_EQ(listener_->stop(), "rank 3\nreason");
  EXPECT_EQ(ended_, 0);
}

TEST_F(FailureListenerTest, ReturnsNothingWithoutReports) {
  start();
  start();  // plugstack.conf may load the plugin twice
  EXPECT_EQ(listener_->stop(), std::nullopt);
}

TEST_F(FailureListenerTest, EndsTheStepOnceForTheFirstReason) {
  start();
  ASSERT_TRUE(send_report(address_, {Kind::kTaskEnded, kNow - seconds(9), "rank 2"}));
  ASSERT_TRUE(send_report(address_, {Kind::kStepMustEnd, kNow, "first"}));
  std::vector<std::future<bool>> others;
  for (int i = 0; i < 200; ++i) {
    others.push_back(std::async(std::launch::async, [&] {
      return send_report(address_, {Kind::kStepMustEnd, kNow - seconds(1), "later"});
    }));
  }
  for (auto& other : others) EXPECT_TRUE(other.get());
  EXPECT_EQ(listener_->stop(), std::nullopt);
  EXPECT_EQ(logged_, "first;");
  EXPECT_EQ(ended_, 1);
}

TEST_F(FailureListenerTest, AcceptsReportsWhileTheControllerIsSlow) {
  std::promise<void> answer;
  listener_->start(
      {.log = [](const std::string&) {}, .end_step = [&] { answer.get_future().wait(); }});
  EXPECT_TRUE(send_report(address_, {Kind::kStepMustEnd, kNow, "first"}));
  EXPECT_TRUE(send_report(address_, {Kind::kStepMustEnd, kNow, "second"}));
  answer.set_value();
  EXPECT_EQ(listener_->stop(), std::nullopt);
}

constexpr milliseconds kSoon{300};

TEST_F(FailureListenerTest, EndsTheStepOnceWhenTheTimeAfterAFailureIsOver) {
  start(kSoon);
  ASSERT_TRUE(send_report(address_, {Kind::kTaskFailed, kNow, "rank 2"}));
  ASSERT_TRUE(send_report(address_, {Kind::kTaskFailed, kNow - seconds(1), "rank 3"}));
  ASSERT_TRUE(reaches(ended_, 1));
  EXPECT_TRUE(send_report(address_, {Kind::kTaskFailed, kNow + seconds(1), "rank 1"}));
  EXPECT_TRUE(send_report(address_, {Kind::kStepMustEnd, kNow, "a reason"}));
  EXPECT_EQ(listener_->stop(), std::nullopt) << "it is printed already";
  EXPECT_TRUE(listener_->has_reports());
  EXPECT_TRUE(logged_.starts_with("rank 3;the step still runs ")) << logged_;
  EXPECT_EQ(ended_, 1);
}

TEST_F(FailureListenerTest, DoesNotEndAStepThatEndsInTime) {
  start(std::chrono::hours(1));
  ASSERT_TRUE(send_report(address_, {Kind::kTaskFailed, kNow, "rank 2"}));
  EXPECT_EQ(listener_->stop(), "rank 2");
  EXPECT_EQ(logged_, "");
  EXPECT_EQ(ended_, 0);
}

TEST_F(FailureListenerTest, LeavesTheEndToSlurmWhereThatHasBegunIt) {
  start(kSoon, {StepState::kEnds});
  ASSERT_TRUE(send_report(address_, {Kind::kTaskFailed, kNow, "rank 2"}));
  ASSERT_TRUE(reaches(asked_, 1));
  EXPECT_EQ(listener_->stop(), "rank 2");
  EXPECT_EQ(asked_, 1);
  EXPECT_EQ(ended_, 0);
}

TEST_F(FailureListenerTest, EndsASuspendedStepWhenItGoesOn) {
  start(kSoon, {StepState::kIsSuspended, StepState::kIsSuspended, StepState::kRuns});
  ASSERT_TRUE(send_report(address_, {Kind::kTaskFailed, kNow, "rank 2"}));
  ASSERT_TRUE(reaches(ended_, 1));
  EXPECT_EQ(asked_, 3);
}

TEST_F(FailureListenerTest, StopsWhileTheStepIsSuspended) {
  start(kSoon, {StepState::kIsSuspended});
  ASSERT_TRUE(send_report(address_, {Kind::kTaskFailed, kNow, "rank 2"}));
  ASSERT_TRUE(reaches(asked_, 1));
  EXPECT_EQ(listener_->stop(), "rank 2");
  EXPECT_EQ(ended_, 0);
}

constexpr int kLongEnoughMs = 500;  // for what must not happen: it has no fact to wait for

// Where Slurm stops the tasks, and not the process that looks at them. A task that was asked to end
// before is no failure.
TEST_F(FailureListenerTest, KeepsAStepWhoseTasksAreSuspended) {
  while_saving_ = milliseconds(1);
  for (const bool has_ended_task : {false, true}) {
    open();
    asked_ = 0;
    start(milliseconds(1), {StepState::kIsSuspended, StepState::kRuns});
    EXPECT_TRUE(!has_ended_task || send_report(address_, {Kind::kTaskEnded, kNow, "rank 3"}));
    ASSERT_TRUE(send_report(address_, {Kind::kTaskHangs, kNow, "rank 4"}));
    ASSERT_TRUE(reaches(asked_, 1));
    poll(nullptr, 0, kLongEnoughMs);
    EXPECT_EQ(listener_->stop().has_value(), has_ended_task);
    EXPECT_EQ(asked_, 1);
    EXPECT_EQ(ended_, 0);
  }
}

// Two nodes reported while the job was suspended. Who has read that sends it again when it runs.
TEST_F(FailureListenerTest, TakesNoHangTwice) {
  const auto hang = [](int time) { return message_of("h" + std::to_string(time) + "\nrank 4"); };
  const Socket first = sent(hang(1)), second = sent(hang(2));  // there when it starts
  start(milliseconds(1), {StepState::kIsSuspended, StepState::kRuns});
  ASSERT_TRUE(reaches(asked_, 1));
  const auto deadline = Clock::now() + milliseconds(kLongEnoughMs);
  while (Clock::now() < deadline) {
    for (const int time : {1, 2}) EXPECT_EQ(answer_to(sent(hang(time))), "+");
  }
  EXPECT_EQ(asked_, 1);
  EXPECT_EQ(ended_, 0);
  EXPECT_EQ(answer_to(sent(hang(3))), "+");  // a new one
  EXPECT_TRUE(reaches(ended_, 1));
}

TEST_F(FailureListenerTest, EndsAStepWhoseTaskFailsAfterItWasSuspended) {
  for (const auto kind : {Kind::kTaskFailed, Kind::kStepMustEnd}) {
    open();
    asked_ = ended_ = 0;
    start(milliseconds(1), {StepState::kIsSuspended, StepState::kRuns});
    ASSERT_TRUE(send_report(address_, {Kind::kTaskHangs, kNow, "rank 4"}));
    ASSERT_TRUE(reaches(asked_, 1));
    EXPECT_EQ(ended_, 0);
    EXPECT_TRUE(send_report(address_, {kind, kNow, "rank 2"}));
    EXPECT_TRUE(reaches(ended_, 1));
    listener_->stop();
  }
}

TEST_F(FailureListenerTest, KeepsTheStepWhereATaskMayHaveBeenAskedToEnd) {
  for (const std::string kinds : {"ft", "tf"}) {
    open();
    std::vector<Socket> reports;  // both are there when it starts, so that the second is not late
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      const std::string number = std::to_string(i);
      reports.push_back(sent(message_of(kinds[i] + number + "\nreport " + number)));
    }
    start(kSoon);
    time_until_closed(connection());  // a second
    EXPECT_EQ(listener_->stop(), "report 0");
  }
  EXPECT_EQ(asked_ + ended_, 0);
}

TEST_F(FailureListenerTest, KeepsTheStepWhereATaskAsksForARequeue) {
  start(milliseconds(50));
  EXPECT_TRUE(send_report(address_, {Kind::kTaskAsksForRequeue, kNow, ""}));
  EXPECT_TRUE(send_report(address_, {Kind::kTaskFailed, kNow + seconds(1), "rank 2"}));
  poll(nullptr, 0, kLongEnoughMs);
  EXPECT_EQ(listener_->stop(), "rank 2");
  EXPECT_EQ(ended_, 0);
}

TEST_F(FailureListenerTest, EndsAStepWhoseTaskHangs) {
  start(std::chrono::minutes(5));  // that it has been stopped for already
  ASSERT_TRUE(send_report(address_, {Kind::kTaskHangs, kNow, "rank 4"}));
  EXPECT_TRUE(reaches(ended_, 1));
  EXPECT_FALSE(listener_->stop());
  EXPECT_TRUE(logged_.starts_with("rank 4;the step still runs 300 s later")) << logged_;
  EXPECT_TRUE(listener_->has_reports());
}

// on_failure=wait, and options of Slurm.
TEST_F(FailureListenerTest, KeepsAStepWhoseTaskHangs) {
  start();
  ASSERT_TRUE(send_report(address_, {Kind::kTaskHangs, kNow, "rank 4"}));
  EXPECT_FALSE(listener_->stop());
  EXPECT_EQ(ended_, 0);
  EXPECT_EQ(logged_, "");
  EXPECT_FALSE(listener_->has_reports());
}

TEST_F(FailureListenerTest, EndsAStepWhoseTasksSaveForTooLong) {
  while_saving_ = milliseconds(600);
  for (const auto kind : {Kind::kTaskAsksForRequeue, Kind::kTaskEnded}) {
    open();
    const auto begin = Clock::now();
    start(milliseconds(1));
    ASSERT_TRUE(send_report(address_, {kind, kNow + seconds(1), "rank 1"}));
    ASSERT_TRUE(send_report(address_, {Kind::kTaskFailed, kNow, "rank 2"}));
    EXPECT_TRUE(reaches(ended_, 1));
    EXPECT_GE(Clock::now() - begin, while_saving_);
    EXPECT_EQ(listener_->stop(), std::nullopt) << "it is printed already";
    EXPECT_TRUE(logged_.starts_with("rank 2;the step still runs ")) << logged_;
    logged_.clear();
    ended_ = 0;
  }
}

TEST_F(FailureListenerTest, KeepsTheStepWithoutATimeLimit) {
  start();
  ASSERT_TRUE(send_report(address_, {Kind::kTaskFailed, kNow, "rank 2"}));
  time_until_closed(connection());  // a second
  EXPECT_EQ(listener_->stop(), "rank 2");
  EXPECT_EQ(asked_ + ended_, 0);
}

TEST_F(FailureListenerTest, AcceptsReportsBeingSentWhenItStops) {
  const Socket early = sent(message_of("t1\nrank 2"));
  start();
  EXPECT_EQ(listener_->stop(), "rank 2");
}

TEST_F(FailureListenerTest, RejectsATimeThatNoClockHolds) {
  start();
  EXPECT_EQ(answer_to(sent(message_of("t9223372036854775807\nrank 2"))), "");
  EXPECT_EQ(listener_->stop(), std::nullopt);
}

// A stranger's connection waits, and there is no descriptor for it.
TEST_F(FailureListenerTest, WaitsForDescriptorsWithoutALoop) {
  const auto stranger = connection();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = Socket(dup(0)).descriptor();
  const rlimit none{static_cast<rlim_t>(next), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  start();
  const auto cpu_time = std::clock();
  poll(nullptr, 0, 1000);  // what must not happen has no fact to wait for
  EXPECT_LT(std::clock() - cpu_time, CLOCKS_PER_SEC / 4);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_TRUE(send_report(address_, {Kind::kTaskEnded, kNow, "rank 2"}));
  EXPECT_EQ(listener_->stop(), "rank 2");
}

TEST_F(FailureListenerTest, RejectsAWrongKey) {
  start();
  FailureListenerAddress wrong = address_;
  wrong.key.back() ^= 1;
  EXPECT_FALSE(send_report(wrong, {Kind::kStepMustEnd, kNow, "a lie"}));
  EXPECT_FALSE(
      send_report({address_.host, address_.port, ""}, {Kind::kStepMustEnd, kNow, "a lie"}));
  EXPECT_FALSE(send_report({}, {Kind::kStepMustEnd, kNow, "nowhere"}));
  ASSERT_TRUE(send_report(address_, {Kind::kTaskEnded, kNow, "the truth"}));
  EXPECT_EQ(listener_->stop(), "the truth");
  EXPECT_EQ(logged_, "");
}

// Who reads a report on its way learns no secret, and can send no other one.
TEST_F(FailureListenerTest, RejectsAReportThatWasChangedOnItsWay) {
  const auto reader = listen_on({"127.0.0.1", 0});
  ASSERT_TRUE(reader);
  EXPECT_FALSE(
      send_report({"127.0.0.1", *bound_port(*reader), kKey}, {Kind::kTaskEnded, kNow, "rank 2"}));
  const Socket read_by_another(accept(reader->descriptor(), nullptr, nullptr));
  char bytes[4096];
  const ssize_t size = recv(read_by_another.descriptor(), bytes, sizeof bytes, MSG_WAITALL);
  ASSERT_GT(size, 0);
  const std::string report(bytes, static_cast<std::size_t>(size));
  for (const std::string& secret : {kSecret, kKey, hex_of(kKey)})
    EXPECT_EQ(report.find(secret), report.npos);

  start();
  const auto is_accepted = [&](const std::string& text) { return answer_to(sent(text)) == "+"; };
  for (std::size_t i = 0; i < report.size(); ++i) {
    std::string changed = report;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_FALSE(is_accepted(changed)) << i;
    EXPECT_FALSE(is_accepted(report.substr(0, i))) << i;
  }
  EXPECT_FALSE(is_accepted(report + "x"));
  EXPECT_EQ(ended_, 0);
  EXPECT_FALSE(listener_->has_reports());
  EXPECT_TRUE(is_accepted(report));
  EXPECT_EQ(listener_->stop(), "rank 2");
}

TEST_F(FailureListenerTest, ClosesAConnectionAfterASecond) {
  start();
  const auto slow = connection();
  send_text(slow, message_of("t1\n"));
  std::thread dripping([&] {  // a byte every 20 ms
    while (send(slow.descriptor(), "x", 1, MSG_NOSIGNAL) == 1) poll(nullptr, 0, 20);
  });
  const auto time = time_until_closed(slow);
  EXPECT_GT(time, milliseconds(500));
  EXPECT_LT(time, milliseconds(2500));
  dripping.join();
}

TEST_F(FailureListenerTest, StopsInSpiteOfSilentConnections) {
  start();
  std::vector<Socket> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(connection());
  const auto start_of_stop = Clock::now();
  EXPECT_EQ(listener_->stop(), std::nullopt);
  EXPECT_LT(Clock::now() - start_of_stop, milliseconds(900));
}

TEST_F(FailureListenerTest, AcceptsAReportAfterAHundredSilentConnections) {
  start();
  std::vector<Socket> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(connection());
  EXPECT_TRUE(send_report(address_, {Kind::kTaskEnded, kNow, "rank 2"}) ||
              send_report(address_, {Kind::kTaskEnded, kNow, "rank 2"}));
  EXPECT_EQ(listener_->stop(), "rank 2");
}

// As many as a user of another host may open: a node's report comes through at once.
TEST_F(FailureListenerTest, AcceptsAReportAmongManySilentConnections) {
  start();
  std::vector<Socket> silent;
  for (int i = 0; i < 600; ++i) silent.push_back(connection());
  EXPECT_TRUE(send_report(address_, {Kind::kTaskEnded, kNow, "rank 2"}));
  EXPECT_EQ(listener_->stop(), "rank 2");
}

TEST_F(FailureListenerTest, TruncatesALongText) {
  start();
  ASSERT_TRUE(
      send_report(address_, {Kind::kTaskEnded, kNow, std::string(2 * StepReport::kMaxText, 'x')}));
  const auto endless = connection();
  send_text(endless, message_of("t1\n"));
  const std::string much(1 << 20, 'x');
  std::thread sender([&] {
    for (int i = 0;
         i < 64 && send(endless.descriptor(), much.data(), much.size(), MSG_NOSIGNAL) > 0; ++i) {
    }
  });
  EXPECT_LT(time_until_closed(endless), milliseconds(900));
  sender.join();
  EXPECT_EQ(listener_->stop(), std::string(StepReport::kMaxText, 'x'));
}

TEST_F(FailureListenerTest, RejectsReportsAfterStop) {
  start();
  listener_->stop();
  const auto start_of_report = Clock::now();
  EXPECT_FALSE(send_report(address_, {Kind::kTaskEnded, kNow, "rank 2"}));
  EXPECT_LT(Clock::now() - start_of_report, seconds(1));
}

// As an srun that SIGSTOP has stopped: the kernel accepts the connection, and no thread the report.
TEST_F(FailureListenerTest, AnUnansweredReportIsAnErrorWithinThreeSeconds) {
  const auto start_of_report = Clock::now();
  EXPECT_FALSE(send_report(address_, {Kind::kTaskEnded, kNow, "rank 2"}));
  EXPECT_LT(Clock::now() - start_of_report, milliseconds(3000));
}

// srun handles signals in a thread of its own; one delivered to the listener's thread would end the
// process here.
TEST_F(FailureListenerTest, LeavesSignalsToOtherThreads) {
  start();
  ASSERT_TRUE(send_report(address_, {Kind::kTaskEnded, kNow, "rank 1"}));  // the thread has started
  sigset_t user;
  sigemptyset(&user);
  sigaddset(&user, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &user, nullptr);
  kill(getpid(), SIGUSR1);
  EXPECT_TRUE(send_report(address_, {Kind::kTaskEnded, kNow, "rank 2"}));
  const timespec soon{5, 0};
  EXPECT_EQ(sigtimedwait(&user, nullptr, &soon), SIGUSR1);
  pthread_sigmask(SIG_UNBLOCK, &user, nullptr);
}

TEST(FailureListener, ListensWithinTheRange) {
  const auto any = FailureListener::open(kKey);
  ASSERT_TRUE(any);
  const auto low = any->port();  // taken
  const auto high = low + 3;
  const auto within = FailureListener::open(kKey, low, high);
  if (!within) GTEST_SKIP() << "other programs have the next ports";
  EXPECT_GT(within->port(), low);
  EXPECT_LE(within->port(), high);
  EXPECT_FALSE(FailureListener::open(kKey, low, low));
}

}  // namespace
}  // namespace torchbridge
