#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <future>

#include <gtest/gtest.h>

#include "bridge/host/process_tree.h"
#include "spank_plugin/task_report.h"

namespace torchbridge {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const std::string kKeyOfSrun = report_key("secret");

// The watch that a task leaves behind is adopted by this process. `tasks` are processes that wait
// for signals.
class StoppedTasks : public ::testing::Test {
 protected:
  StoppedTasks() { prctl(PR_SET_CHILD_SUBREAPER, 1); }
  ~StoppedTasks() override {
    for (const pid_t task : tasks_) end(task);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
  }

  pid_t start_task(int rank) {
    const pid_t task = fork();
    if (task == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (;;) pause();
    }
    tasks_.push_back(task);
    table_.write_record(static_cast<std::size_t>(rank),
                        {.rank = rank, .process = task, .start = {}});
    return task;
  }
  static void end(pid_t task) {
    kill(task, SIGKILL);
    waitpid(task, nullptr, 0);
  }
  void watch(milliseconds limit) {
    ASSERT_TRUE(listener_);
    listener_->start({.log = [this](const std::string& text) { logged_ += text + ";"; },
                      .end_step = [this] { ended_.set_value(); },
                      .time_after_failure = limit,
                      .state = [] { return StepState::kRuns; }});
    watch_stopped_tasks(table_, {"127.0.0.1", listener_->port(), kKeyOfSrun}, limit);
  }

  SharedTaskTable table_{3};
  std::unique_ptr<FailureListener> listener_ = FailureListener::open(kKeyOfSrun);
  std::promise<void> ended_;
  std::string logged_;  // read after stop()
  std::vector<pid_t> tasks_;
};

TEST_F(StoppedTasks, EndTheStep) {
  start_task(1);
  const pid_t stopped = start_task(2);
  kill(stopped, SIGSTOP);
  watch(seconds(1));
  ASSERT_EQ(ended_.get_future().wait_for(seconds(30)), std::future_status::ready);
  listener_->stop();
  EXPECT_TRUE(logged_.starts_with("rank 2 on ")) << logged_;
  EXPECT_NE(logged_.find(" has been stopped for 1 s since it started (process " +
                         std::to_string(stopped) +
                         ", state T): continue that process, or end it;the step still runs 1 s "
                         "later and is ended: "),
            logged_.npos)
      << logged_;
  EXPECT_TRUE(listener_->has_reports());  // srun does not end with 0
  EXPECT_GT(waitpid(-1, nullptr, 0), 0);  // the watch has ended
}

// As `srun sh -c 'program; exit 3'`: the rank is not the task itself.
TEST_F(StoppedTasks, MayBeBelowAScript) {
  const pid_t script = fork();
  if (script == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const pid_t program = fork();
    if (program == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      raise(SIGSTOP);
      _exit(0);
    }
    waitpid(program, nullptr, 0);
    _exit(3);
  }
  tasks_.push_back(script);
  table_.write_record(1, {.rank = 1, .process = script, .start = {}});
  std::vector<int> below;
  while ((below = descendants_of(script)).empty()) poll(nullptr, 0, 5);
  watch(seconds(1));
  ASSERT_EQ(ended_.get_future().wait_for(seconds(30)), std::future_status::ready);
  listener_->stop();
  EXPECT_TRUE(logged_.starts_with("rank 1 on ")) << logged_;
  EXPECT_NE(logged_.find("(process " + std::to_string(below[0]) + ", state T)"), logged_.npos)
      << logged_;
}

TEST_F(StoppedTasks, AreNotReportedWhenTheyContinueInTime) {
  const pid_t task = start_task(0);
  kill(task, SIGSTOP);
  watch(seconds(3));
  auto ended = ended_.get_future();
  EXPECT_EQ(ended.wait_for(seconds(1)), std::future_status::timeout);
  kill(task, SIGCONT);
  EXPECT_EQ(ended.wait_for(seconds(3)), std::future_status::timeout);
  end(task);
  EXPECT_GT(waitpid(-1, nullptr, 0), 0);  // the watch has ended with the task
  listener_->stop();
  EXPECT_EQ(logged_, "");
}

// A process that has got the id of a task that ended, as the user's shell in another job.
TEST_F(StoppedTasks, AreNotTakenForLaterProcesses) {
  start_task(0);
  watch(seconds(1));
  auto ended = ended_.get_future();
  const auto now = start_ticks(getpid());
  ASSERT_GT(now, 0);
  const std::vector<int> before = children_of(getpid());
  pid_t later = 0;
  do {  // in another tick of the clock than the watch
    if (later > 0) end(later);
    later = fork();
    if (later == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (;;) pause();
    }
  } while (std::ranges::any_of(
      before, [&](int other) { return start_ticks(other) >= start_ticks(later); }));
  tasks_.push_back(later);
  kill(later, SIGSTOP);
  table_.write_record(1, {.rank = 1, .process = later, .start = {}});
  EXPECT_EQ(ended.wait_for(seconds(3)), std::future_status::timeout);
  listener_->stop();
  EXPECT_EQ(logged_, "");
}

// srun closes connections while strangers flood its port.
TEST_F(StoppedTasks, AreReportedUntilSrunKnows) {
  const pid_t task = start_task(0);
  const auto listener = listen_on({"127.0.0.1", 0});
  ASSERT_TRUE(listener);
  kill(task, SIGSTOP);
  watch_stopped_tasks(table_, {"127.0.0.1", *bound_port(*listener), kKeyOfSrun}, milliseconds(1));
  for (int report = 0; report < 2; ++report) {
    pollfd connection{listener->descriptor(), POLLIN, 0};
    ASSERT_EQ(poll(&connection, 1, 30'000), 1) << "report " << report;
    EXPECT_TRUE(Socket(accept(listener->descriptor(), nullptr, nullptr)).open());
  }
}

}  // namespace
}  // namespace torchbridge
