#include "spank_plugin/task_report.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>

#include "child_ending.h"
#include "process_state.h"
#include "spank_plugin/failure_desk.h"

namespace torchbridge {
namespace {

constexpr int kExitCode3 = 3 << 8;

// As slurmstepd and its task: a child writes, and is gone before the parent reads.
void write_in_child(const TaskBoard& board, const EnvMap& environment, const std::string& error_file) {
  const auto write = [&] {
    write_record(*board.record_of(1), environment, 5, error_file);
    std::ofstream(error_file) << "the reason";
  };
  ASSERT_EQ(ending_of_child(write), exited(0));
}

class TaskReport : public ::testing::Test {
 protected:
  ~TaskReport() override { std::filesystem::remove(error_file_); }

  std::string tell() const { return tell_failure(*board_.record_of(1), geteuid(), getegid(), kExitCode3); }

  TaskBoard board_{2};
  std::string error_file_ = testing::TempDir() + "task_report_" + std::to_string(getpid());
};

TEST_F(TaskReport, IsReturnedWhereThereIsNoDesk) {
  write_in_child(board_, {}, error_file_);
  ASSERT_TRUE(board_.record_of(1)->written);
  const std::string text = tell();
  EXPECT_TRUE(text.starts_with("first to fail on this node: rank 5 on ")) << text;
  EXPECT_TRUE(text.ends_with("exit code 3\n    the reason")) << text;
}

// The children of this process's threads, by the kernel's list.
pid_t any_child() {
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    pid_t child = 0;
    if (std::ifstream(thread.path() / "children") >> child) return child;
  }
  return 0;
}

// A signal takes effect when its process runs: whether it stops, or ends before.
bool stops(pid_t process) {
  while (true) {
    const char state = process_state(process);
    if (state == 'T') return true;
    if (state == '\0' || state == 'Z' || state == 'X') return false;
    std::this_thread::yield();
  }
}

// The process that tells has the rights of the user, who may stop it.
TEST_F(TaskReport, AStoppedTellerDoesNotKeepTheStep) {
  write_in_child(board_, {}, error_file_);
  bool stopped = false;
  for (int attempt = 0; attempt < 200 && !stopped; ++attempt) {
    std::atomic<bool> told = false;
    std::thread user([&] {
      pid_t teller = 0;
      while (!told && (teller = any_child()) == 0) {
      }
      if (teller != 0 && kill(teller, SIGSTOP) == 0) stopped = stops(teller);
    });
    tell();  // hangs where a stopped child is waited for
    told = true;
    user.join();
  }
  EXPECT_TRUE(stopped) << "the teller was never met alive";
}

TEST_F(TaskReport, GoesToTheDesk) {
  const auto desk = FailureDesk::open();
  ASSERT_TRUE(desk) << desk.error().message;
  write_in_child(board_, {{DeskAddress::kVariable, desk->variable()}, {"SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1"}}, error_file_);
  EXPECT_EQ(tell(), "");
  EXPECT_TRUE(desk->first_report().value_or("").starts_with("first to fail: rank 5 on "));
}

TEST_F(TaskReport, IsReturnedWhereTheDeskIsGone) {
  EnvMap environment;
  {
    const auto desk = FailureDesk::open();
    ASSERT_TRUE(desk) << desk.error().message;
    environment = {{DeskAddress::kVariable, desk->variable()}, {"SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1"}};
  }
  write_in_child(board_, environment, error_file_);
  EXPECT_TRUE(tell().starts_with("first to fail on this node: rank 5 on "));
}

TEST(TaskBoard, LetsOneTaskOfTheNodeSpeak) {
  const TaskBoard board(2);
  EXPECT_EQ(ending_of_child([&] { _exit(board.may_speak() ? 0 : 1); }), exited(0));
  EXPECT_FALSE(board.may_speak());
  EXPECT_TRUE(TaskBoard().may_speak());
}

TEST(TaskBoard, HasNoRecordBeyondItsTasks) {
  EXPECT_EQ(TaskBoard().record_of(0), nullptr);
  const TaskBoard board(2);
  ASSERT_NE(board.record_of(1), nullptr);
  EXPECT_FALSE(board.record_of(1)->written);
  EXPECT_EQ(board.record_of(2), nullptr);
}

}  // namespace
}  // namespace torchbridge
