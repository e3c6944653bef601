#include <signal.h>
#include <unistd.h>

#include <thread>

#include <gtest/gtest.h>
#include <torchbridge/preemption.h>

#include "tests/support/child_ending.h"

namespace torchbridge::train {
namespace {

using std::chrono::seconds;
using Clock = std::chrono::system_clock;

TEST(Preemption, IsRequestedBySignalsThatWouldEndTheProcess) {
  const std::pair<int, const char*> kSignals[] = {{SIGTERM, "SIGTERM"},
                                                  {SIGUSR1, "SIGUSR1"},
                                                  {SIGUSR2, "SIGUSR2"},
                                                  {SIGINT, "SIGINT"},
                                                  {SIGHUP, "SIGHUP"}};
  signal(SIGHUP, SIG_DFL);  // ignored by nohup
  for (const auto& [number, name] : kSignals) {
    Preemption preemption({});
    preemption.begin_work();
    EXPECT_FALSE(preemption.requested());
    EXPECT_EQ(preemption.reason(), "");
    EXPECT_EQ(preemption.signal(), 0);
    raise(number);
    EXPECT_TRUE(preemption.requested()) << name;
    EXPECT_EQ(preemption.reason(), name);
    EXPECT_EQ(preemption.signal(), number);
  }
}

TEST(Preemption, ReportsTheFirstOfSeveral) {
  Preemption preemption({});
  preemption.begin_work();
  raise(SIGUSR1);
  raise(SIGTERM);
  raise(SIGTERM);
  raise(SIGINT);
  EXPECT_EQ(preemption.reason(), "SIGUSR1");
}

// An agent or mpirun passes on what a launcher has sent to each process.
TEST(Preemption, InterruptsWithinASecondAreOne) {
  Preemption preemption({});
  preemption.begin_work();
  for (int i = 0; i < 3; ++i) raise(SIGINT);
  EXPECT_EQ(preemption.reason(), "SIGINT");
}

TEST(Preemption, AnInterruptASecondLaterEndsTheProcess) {
  using Steady = std::chrono::steady_clock;
  const auto begin = Steady::now();
  const std::string ending = ending_of_child([&] {
    Preemption preemption({});
    preemption.begin_work();
    raise(SIGTERM);
    while (Steady::now() < begin + seconds(60)) raise(SIGINT);
  });
  EXPECT_EQ(ending, killed(SIGINT));
  EXPECT_GE(Steady::now() - begin, seconds(1));
}

// How a child ends that does `work` with this signal.
template <class Work>
std::string ending_by(int number, const PreemptionOptions& options, Work&& work) {
  return ending_of_child([&] {
    Preemption preemption(options);
    work(preemption, number);
  });
}

TEST(Preemption, ASignalEndsAProcessThatDoesNotBeginWorkInTime) {
  const auto waits = [](Preemption&, int number) {
    raise(number);
    while (true) pause();
  };
  EXPECT_EQ(ending_by(SIGUSR1, {.saves = true, .is_reporter = false}, waits), exited(75));
  EXPECT_EQ(ending_by(SIGUSR1, {.saves = false, .is_reporter = false}, waits),
            exited(128 + SIGUSR1));
}

TEST(Preemption, ASignalBeforeWorkBeginsIsARequestToStop) {
  const auto begins = [](Preemption& preemption, int number) {
    raise(number);
    preemption.begin_work();
    if (preemption.signal() != number || alarm(0) != 0) _exit(1);
  };
  EXPECT_EQ(ending_by(SIGTERM, {.saves = true, .is_reporter = false}, begins), exited(0));
}

TEST(Preemption, EndsTheProcessWhenTheGraceIsOver) {
  const auto hangs = [](Preemption& preemption, int number) {
    preemption.begin_work();
    raise(number);
    while (true) pause();
  };
  EXPECT_EQ(ending_by(SIGTERM, {.grace = seconds(1), .saves = true, .is_reporter = false}, hangs),
            exited(75));
  const auto soon = Clock::now() + seconds(1);
  EXPECT_EQ(ending_by(SIGTERM, {.end_of_job = soon, .saves = false, .is_reporter = false}, hangs),
            exited(128 + SIGTERM));
}

TEST(Preemption, AnEndOfTheJobInThePastIsNoGrace) {
  Preemption preemption({.end_of_job = Clock::now() - seconds(10)});
  preemption.begin_work();
  raise(SIGTERM);
  EXPECT_EQ(alarm(0), 0u);
}

TEST(Preemption, TheDestructorRestoresTheHandlers) {
  const std::string ending = ending_of_child([] {
    { const Preemption preemption({}); }
    raise(SIGUSR1);
  });
  EXPECT_EQ(ending, killed(SIGUSR1));
}

TEST(Preemption, AnEndInThePastIsNoReasonToStop) {
  const auto past = std::chrono::system_clock::now() - std::chrono::seconds(5);
  testing::internal::CaptureStderr();
  const Preemption preemption({.before_end = std::chrono::seconds(100), .end_of_job = past});
  EXPECT_FALSE(preemption.requested());
  EXPECT_TRUE(testing::internal::GetCapturedStderr().starts_with(
      "train_without_libtorch_test: the end of the job is past"));
}

TEST(Preemption, AFailedWriteDoesNotEndTheProcess) {
  const std::string ending = ending_of_child([] {
    Preemption preemption({});
    preemption.begin_work();
    raise(SIGPIPE);
    raise(SIGXFSZ);
    _exit(7);
  });
  EXPECT_EQ(ending, exited(7));
}

TEST(Preemption, SignalsAfterTheEndAreIgnored) {
  const std::string ending = ending_of_child([] {
    {
      Preemption preemption({});
      preemption.begin_work();
      preemption.complete();
      raise(SIGTERM);
    }
    raise(SIGINT);
    _exit(7);
  });
  EXPECT_EQ(ending, exited(7));
}

TEST(Preemption, ASignalAfterAStopDoesNotChangeTheExitCode) {
  const std::string ending = ending_of_child([] {
    {
      Preemption preemption({});
      preemption.begin_work();
      preemption.stopped();  // at another rank's request
    }
    raise(SIGUSR1);
    _exit(75);
  });
  EXPECT_EQ(ending, exited(75));
}

TEST(Preemption, SignalsThatWereIgnoredStayIgnored) {
  const std::string ending = ending_of_child([] {
    signal(SIGINT, SIG_IGN);  // as a shell does for what it starts in the background
    const Preemption preemption({});
    raise(SIGINT);
    raise(SIGINT);
    if (preemption.requested()) _exit(1);
  });
  EXPECT_EQ(ending, exited(0));
}

TEST(Preemption, IsRequestedBeforeTheJobEnds) {
  const auto now = Clock::now();
  EXPECT_FALSE(Preemption({seconds(100), now + seconds(200)}).requested());
  const Preemption near({seconds(100), now + seconds(50)});
  EXPECT_TRUE(near.requested());
  EXPECT_TRUE(near.reason() == "the job ends in 49 s" || near.reason() == "the job ends in 50 s")
      << near.reason();
  EXPECT_FALSE(Preemption({std::nullopt, now - seconds(5)}).requested());
  EXPECT_FALSE(Preemption({seconds(100), std::nullopt}).requested());
}

TEST(EndOfJob, IsSlurmsVariable) {
  EXPECT_EQ(*end_of_job({}), std::nullopt);
  EXPECT_EQ(*end_of_job({{"SLURM_JOB_END_TIME", "1700000000"}}),
            Clock::time_point(seconds(1'700'000'000)));
  for (const char* wrong : {"", "soon", "-1", "99999999999999999999"})
    EXPECT_FALSE(end_of_job({{"SLURM_JOB_END_TIME", wrong}})) << wrong;
}

}  // namespace
}  // namespace torchbridge::train
