#include "bridge/run_values/run_report.h"

#include <gtest/gtest.h>

using namespace torchbridge;
using std::chrono::milliseconds;

namespace {

WorkerReport failure_of(int rank, const std::string& host, milliseconds time, double time_error) {
  WorkerReport worker;
  worker.rank = rank;
  worker.host = host;
  worker.clock = "n0";
  worker.wait_status = 1 << 8;
  worker.time = worker.not_before = std::chrono::system_clock::time_point(time);
  worker.time_error = time_error;
  return worker;
}

std::string summary_of(std::vector<WorkerReport> failures, bool is_named = true) {
  RunReport run;
  run.program = "./trainer";
  run.run_id = "night";
  run.is_named = is_named;
  run.attempts.emplace_back().failures = in_order(std::move(failures));
  return summary_text(run);
}

constexpr char kDoubt[] = "may have failed before";

TEST(RunReport, SaysWhereTheClocksDoNotTellWhichFailureWasFirst) {
  const std::string text = summary_of(
      {failure_of(0, "n0", milliseconds(5), 0), failure_of(9, "n1", milliseconds(7), 0.003)});
  EXPECT_NE(text.find("root cause: rank 0 on n0"), text.npos) << text;
  EXPECT_NE(text.find("\n  rank 9 may have failed before rank 0: the clock difference of their "
                      "nodes has an error of up to 3.0 ms"),
            text.npos)
      << text;
}

TEST(RunReport, HasNoDoubtWhereFailuresAreFartherApartThanTheClocks) {
  const std::string text = summary_of(
      {failure_of(0, "n0", milliseconds(5), 0), failure_of(9, "n1", milliseconds(9), 0.003)});
  EXPECT_EQ(text.find(kDoubt), text.npos) << text;
}

TEST(RunReport, HasNoDoubtAboutFailuresOfOneNode) {
  const std::string text = summary_of(
      {failure_of(8, "n1", milliseconds(5), 0.1), failure_of(9, "n1", milliseconds(5), 0.1)});
  EXPECT_EQ(text.find(kDoubt), text.npos) << text;
}

TEST(RunReport, NamesARunThatHasAName) {
  const WorkerReport failure = failure_of(0, "n0", milliseconds(5), 0);
  EXPECT_TRUE(
      summary_of({failure}).starts_with("./trainer failed after 1 attempt, 0.0 s (run night)\n"));
  EXPECT_TRUE(
      summary_of({failure}, false).starts_with("./trainer failed after 1 attempt, 0.0 s\n"));
}

}  // namespace
