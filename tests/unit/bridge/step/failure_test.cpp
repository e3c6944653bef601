#include "bridge/step/failure.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

int exit_status(int code) { return code << 8; }  // as Linux encodes it for waitpid

TaskFailure failure_with(int wait_status) {
  TaskFailure failure;
  failure.rank = 3;
  failure.host = failure.clock = "n1";
  failure.wait_status = wait_status;
  failure.time =
      std::chrono::system_clock::time_point(std::chrono::milliseconds(1'700'000'000'042));
  return failure;
}

TEST(Failure, NamesTheHostOfTheClock) {
  setenv("TZ", "UTC", 1);
  TaskFailure failure = failure_with(exit_status(7));
  failure.clock = "n0";
  EXPECT_EQ(describe(failure),
            "rank 3 on n1, at 2023-11-14 22:13:20.042 (local time of n0): exit code 7");
}

TEST(Failure, NamesRankNodeTimeAndEnding) {
  setenv("TZ", "UTC", 1);
  EXPECT_EQ(describe(failure_with(exit_status(7))),
            "rank 3 on n1, at 2023-11-14 22:13:20.042 (local time of n1): exit code 7");
  EXPECT_EQ(describe(failure_with(SIGSEGV)),
            "rank 3 on n1, at 2023-11-14 22:13:20.042 (local time of n1): killed by signal 11 "
            "(Segmentation fault)");
}

TEST(Failure, CallsAKillOutOfMemoryOnlyWhereTheKernelKilled) {
  TaskFailure failure = failure_with(SIGKILL);
  EXPECT_EQ(describe(failure).find("memory"), std::string::npos);
  failure.is_out_of_memory = true;
  EXPECT_NE(describe(failure).find("out of memory"), std::string::npos);
  failure.wait_status = SIGTERM;
  EXPECT_EQ(describe(failure).find("memory"), std::string::npos);
}

std::string reason_shown(const std::string& reason) {
  const TaskFailure failure = failure_with(exit_status(1));
  return describe(failure, reason).substr(describe(failure).size());
}

TEST(Failure, ShowsTheReasonLineByLine) {
  EXPECT_EQ(reason_shown("one\ntwo\n"), "\n    one\n    two");
  EXPECT_EQ(reason_shown(R"({"message": "a \"b\"\n c\\d"})"),
            "\n    {\"message\": \"a \"b\"\n     c\\d\"}");
  EXPECT_EQ(reason_shown("ends in a backslash \\"), "\n    ends in a backslash \\");
}

TEST(Failure, ShowsNoControlCharacters) {
  EXPECT_EQ(reason_shown("\x1b[2J\x7f\xc2\x9b"), "\n    \\x1b[2J\\x7f\\xc2\\x9b");
}

TEST(Failure, TruncatesALongReason) {
  std::string reason;
  for (int i = 0; i < 1000; ++i) reason += "line\n";
  const std::string shown = reason_shown(reason);
  EXPECT_EQ(std::count(shown.begin(), shown.end(), '\n'), 65);
  EXPECT_TRUE(shown.ends_with("\n    ..."));
}

}  // namespace
}  // namespace torchbridge
