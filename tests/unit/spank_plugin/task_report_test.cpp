#include "spank_plugin/task_report.h"

#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include <gtest/gtest.h>

#include "spank_plugin/failure_listener.h"
#include "tests/support/child_ending.h"

namespace torchbridge {
namespace {

constexpr int kExitCode3 = 3 << 8;
const std::string kReportKey = report_key("secret");

class TaskReport : public ::testing::Test {
 protected:
  ~TaskReport() override { std::filesystem::remove(error_file_); }

  // As slurmstepd and its task: a child writes, and ends before the parent reads.
  void write_in_child() {
    const auto write = [&] {
      write_record(table_, 1, {5, error_file_, true});
      std::ofstream(error_file_) << "the reason";
    };
    ASSERT_EQ(ending_of_child(write), exited(0));
    ASSERT_TRUE(table_.has_record(1));
  }
  TaskRecord record() const { return *table_.record_of(1); }

  SharedTaskTable table_{2};
  std::string error_file_ = testing::TempDir() + "task_report_" + std::to_string(getpid());
};

TEST_F(TaskReport, IsReturnedWhereSrunDoesNotListen) {
  write_in_child();
  const std::string text = report_failure(table_, record(), {}, kExitCode3, {}).text;
  EXPECT_TRUE(text.starts_with("first to fail on this node: rank 5 on ")) << text;
  EXPECT_TRUE(text.ends_with("exit code 3\n    the reason")) << text;
}

TEST_F(TaskReport, GoesToSrunsListener) {
  const auto listener = FailureListener::open(kReportKey);
  ASSERT_TRUE(listener);
  listener->start({});
  write_in_child();
  EXPECT_EQ(
      report_failure(table_, record(), {"127.0.0.1", listener->port(), kReportKey}, kExitCode3, {})
          .text,
      "");
  EXPECT_TRUE(listener->stop().value_or("").starts_with("first to fail: rank 5 on "));
}

TEST_F(TaskReport, IsReturnedWhereTheListenerIsGone) {
  FailureListenerAddress gone{"127.0.0.1", 0, ""};
  {
    const auto listener = FailureListener::open(kReportKey);
    ASSERT_TRUE(listener);
    gone = {"127.0.0.1", listener->port(), kReportKey};
  }
  write_in_child();
  EXPECT_TRUE(report_failure(table_, record(), gone, kExitCode3, {})
                  .text.starts_with("first to fail on this node: rank 5 on "));
}

// What a node sends where srun closes its first `closed` connections and accepts the next.
std::string sent_to_srun(int closed,
                         const std::function<void(const FailureListenerAddress&)>& act) {
  const auto listening = listen_on({"127.0.0.1", 0});
  if (!listening) return "";
  std::string received;
  std::thread srun([&] {
    const auto accepted = [&] { return Socket(accept(listening->descriptor(), nullptr, nullptr)); };
    for (int i = 0; i < closed; ++i) accepted();
    const Socket last = accepted();
    char bytes[4096];
    for (ssize_t size; (size = recv(last.descriptor(), bytes, sizeof bytes, 0)) > 0;)
      received.append(bytes, static_cast<std::size_t>(size));
    send(last.descriptor(), "+", 1, MSG_NOSIGNAL);
  });
  act({"127.0.0.1", *bound_port(*listening), kReportKey});
  shutdown(listening->descriptor(), SHUT_RDWR);
  srun.join();
  return received;
}

constexpr std::size_t kProofSize = 64;

// srun may have closed the first connection for want of room.
TEST_F(TaskReport, IsSentAgain) {
  write_in_child();
  const std::string received = sent_to_srun(1, [&](const auto& srun) {
    EXPECT_EQ(report_failure(table_, record(), srun, kExitCode3, {}).text, "");
  });
  EXPECT_EQ(received.substr(kProofSize, 1), "f") << received;
}

TEST_F(TaskReport, IsNotReturnedWhereSlurmMayHaveEndedTheTask) {
  write_in_child();
  const struct {
    int wait_status;
    bool failed;
  } kCases[] = {{SIGTERM, false},
                {SIGKILL, false},
                {(128 + SIGTERM) << 8, false},
                {(128 + SIGKILL) << 8, false},
                {SIGSEGV, true},
                {SIGABRT, true},
                {1 << 8, true}};
  for (const auto& test : kCases) {
    const std::string text = report_failure(table_, record(), {}, test.wait_status, {}).text;
    EXPECT_EQ(text.empty(), !test.failed) << test.wait_status;
    EXPECT_EQ(text.starts_with("first to fail"), test.failed) << test.wait_status;
  }
  TaskRecord out_of_memory = record();
  out_of_memory.oom_kills = -1;  // memory ran out while the task ran
  EXPECT_TRUE(
      report_failure(table_, out_of_memory, {}, SIGKILL, {}).text.starts_with("first to fail"));
}

// By the kind of the report: others may wait for a task that failed (f), and may be saving beside
// one that ended (t).
TEST_F(TaskReport, TellsSrunWhetherTheStepIsToRunOn) {
  write_in_child();
  const struct {
    int wait_status;
    std::vector<std::string> program;
    bool runs_on;
    bool has_just_started = false;
  } kCases[] = {{kExitCode3, {"python", "train.py"}, false},
                {SIGSEGV, {}, false},
                {SIGKILL, {}, false},
                {SIGTERM, {}, true},
                {(128 + SIGTERM) << 8, {}, true},
                {SIGINT, {}, true},
                {SIGUSR1, {}, true},
                {SIGUSR2, {}, true},
                {SIGHUP, {}, true},
                {(128 + SIGINT) << 8, {}, true},
                {kExitCode3, {"torchrun", "train.py"}, true},
                {SIGKILL, {"torchbridge", "run", "x"}, true},
                {kExitCode3, {"torchbridge", "exec", "x"}, false},
                {SIGTERM, {}, false, true},
                {(128 + SIGUSR1) << 8, {}, false, true},
                {SIGTERM, {"torchrun", "train.py"}, true, true}};
  for (const auto& test : kCases) {
    TaskRecord started = record();
    if (!test.has_just_started) started.start -= kStarting;
    const std::string received = sent_to_srun(0, [&](const auto& srun) {
      EXPECT_EQ(report_failure(table_, started, srun, test.wait_status, test.program).text, "");
    });
    EXPECT_EQ(received.substr(kProofSize, 1), test.runs_on ? "t" : "f") << test.wait_status;
  }
}

// A rank that fails because of another one may end before it.
TEST_F(TaskReport, ComesAgainFromTheTaskThatWroteItsFileFirst) {
  write_in_child();
  const std::string later = error_file_ + "_later";
  ASSERT_EQ(ending_of_child([&] {
              write_record(table_, 0, {4, later, true});
              std::ofstream(later) << "a consequence";
            }),
            exited(0));
  std::filesystem::last_write_time(
      later, std::filesystem::last_write_time(error_file_) + std::chrono::milliseconds(20));
  const auto first = report_failure(table_, *table_.record_of(0), {}, kExitCode3, {});
  EXPECT_TRUE(first.text.ends_with("a consequence")) << first.text;
  EXPECT_FALSE(first.is_cause);
  const auto cause = report_failure(table_, record(), {}, kExitCode3, {}, false);
  EXPECT_TRUE(cause.text.ends_with("the reason")) << cause.text;
  EXPECT_TRUE(cause.is_cause);
  EXPECT_EQ(report_failure(table_, *table_.record_of(0), {}, kExitCode3, {}, false).text, "");
  std::filesystem::remove(later);
}

// Where the user chose one file for all ranks, a rank that Slurm ends because of the one that wrote
// it reads it too, and may have started earlier.
TEST_F(TaskReport, IsThatOfTheRankThatEndedFirstOfThoseWithOneFile) {
  const SharedTaskTable other_node(1);
  write_record(table_, 0, {5, error_file_, false});
  write_record(other_node, 0, {6, error_file_, false});
  std::ofstream(error_file_) << "the reason";
  // The kernel's coarse time of the file may be before the start of the rank that wrote it.
  const auto time = std::filesystem::file_time_type::clock::now() - std::chrono::milliseconds(50);
  std::filesystem::last_write_time(error_file_, time);
  const auto written = std::chrono::file_clock::to_sys(time);
  const auto starts_at = [](const SharedTaskTable& table, auto start) {
    TaskRecord record = *table.record_of(0);
    record.start = std::chrono::time_point_cast<std::chrono::system_clock::duration>(start);
    table.write_record(0, record);
  };
  starts_at(table_, written + std::chrono::milliseconds(9));
  starts_at(other_node, written - std::chrono::seconds(1));
  const auto listener = FailureListener::open(kReportKey);
  ASSERT_TRUE(listener);
  listener->start({});
  const FailureListenerAddress srun{"127.0.0.1", listener->port(), kReportKey};
  report_failure(table_, *table_.record_of(0), srun, kExitCode3, {});
  report_failure(other_node, *other_node.record_of(0), srun, SIGTERM, {});
  const std::string text = listener->stop().value_or("");
  EXPECT_NE(text.find("exit code 3"), text.npos) << text;
}

TEST_F(TaskReport, LeavesTheFileUntilTheStepEnds) {
  write_in_child();
  EXPECT_TRUE(report_failure(table_, record(), {}, kExitCode3, {}).text.ends_with("the reason"));
  EXPECT_TRUE(std::filesystem::exists(error_file_));
  remove_error_files(table_);
  EXPECT_FALSE(std::filesystem::exists(error_file_));
}

TEST_F(TaskReport, KeepsAFileThatTheUserChose) {
  write_record(table_, 1, {5, error_file_, false});
  std::ofstream(error_file_) << "the reason";
  remove_error_files(table_);
  EXPECT_TRUE(std::filesystem::exists(error_file_));
}

}  // namespace
}  // namespace torchbridge
