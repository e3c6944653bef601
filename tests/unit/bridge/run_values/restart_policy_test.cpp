#include "bridge/run_values/restart_policy.h"

#include <csignal>

#include <gtest/gtest.h>

using namespace torchbridge;
using std::chrono::duration;

namespace {

constexpr int exited(int code) { return code << 8; }
constexpr int killed(int signal) { return signal; }

WorkerReport worker(int rank, int wait_status, double lifetime = 60) {
  WorkerReport report;
  report.rank = rank;
  report.wait_status = wait_status;
  report.time += std::chrono::milliseconds(static_cast<int>(lifetime * 1000));
  return report;
}
AttemptReport failed(int wait_status, double lifetime = 60, const std::string& message = "",
                     int rank = 1) {
  AttemptReport attempt{.lifetime = duration<double>(lifetime + 20)};  // until all had ended
  attempt.failures.push_back(worker(rank, wait_status, lifetime));
  if (!message.empty()) attempt.failures.front().error = ErrorRecord{message, message, {}};
  attempt.failures.push_back(worker(7, killed(SIGTERM)));
  attempt.failures.back().is_ended_by_agent = true;
  return attempt;
}
AttemptReport failed(const std::vector<WorkerReport>& failures) {
  return {.lifetime = duration<double>(60), .failures = failures};
}
AttemptReport succeeded() { return {}; }
AttemptReport stuck() {
  AttemptReport attempt = failed(killed(SIGKILL));
  attempt.can_restart = false;
  return attempt;
}
AttemptReport interrupted() {
  AttemptReport attempt = failed(exited(2), 2);
  attempt.interruption = "node n2 (pid 17) is lost: it closed its connection";
  return attempt;
}

RestartRules allowed(int restarts) {
  return {.max_restarts = restarts, .backoff = {}, .stop_signal = 0};
}

struct Case {
  const char* name;
  std::vector<AttemptReport> attempts;
  int restarts;
  RestartRules rules;
  bool is_restart;
  int exit_code;
};

const Case kCases[] = {
    {"success ends with 0", {succeeded()}, 0, allowed(3), false, 0},
    {"a failure is tried again", {failed(exited(1))}, 0, allowed(1), true, 0},
    {"none is left", {failed(exited(1)), failed(exited(2))}, 1, allowed(1), false, 2},
    {"none is allowed", {failed(exited(3))}, 0, allowed(0), false, 3},
    {"a signal is 128+signal", {failed(killed(SIGSEGV))}, 0, allowed(0), false, 139},
    {"restarts of a killed agent count", {failed(exited(1))}, 3, allowed(3), false, 1},
    {"75 is passed on", {failed(exited(75))}, 0, allowed(3), false, 75},
    {"all 75 is passed on",
     {failed({worker(0, exited(75)), worker(1, exited(75))})},
     0,
     allowed(3),
     false,
     75},
    {"75 after another's failure is a failure",
     {failed({worker(0, killed(SIGKILL)), worker(1, exited(75))})},
     0,
     allowed(3),
     true,
     0},
    {"a stop is no failure", {succeeded()}, 0, {3, {}, SIGTERM}, false, 143},
    {"a stop ends restarts", {failed(exited(1))}, 0, {3, {}, SIGINT}, false, 130},
    {"75 after a stop is passed on", {failed(exited(75))}, 0, {3, {}, SIGTERM}, false, 75},
    {"a stuck worker", {stuck()}, 0, allowed(3), false, 137},
    {"a crash loop",
     {failed(exited(1), 2), failed(exited(1), 2), failed(exited(1), 2)},
     2,
     allowed(9),
     false,
     1},
    {"two are no loop", {failed(exited(1), 2), failed(exited(1), 2)}, 1, allowed(9), true, 0},
    {"a loop is in a row",
     {failed(exited(1), 2), failed(exited(1), 2), failed(exited(2), 2), failed(exited(1), 2)},
     3,
     allowed(9),
     true,
     0},
    {"an interruption between them does not count",
     {failed(exited(1), 2), failed(exited(1), 2), interrupted(), failed(exited(1), 2)},
     3,
     allowed(9),
     false,
     1},
    {"in any rank",
     {failed(exited(1), 2, "", 0), failed(exited(1), 2), failed(exited(1), 2)},
     2,
     allowed(9),
     false,
     1},
    {"numbers in the message may differ",
     {failed(exited(1), 2, "pid 7, at 0x7ffd10"), failed(exited(1), 2, "pid 41, at 0x55af"),
      failed(exited(1), 2, "pid 9, at 0x7f")},
     2,
     allowed(9),
     false,
     1},
    {"with one message",
     {failed(exited(1), 2, "a"), failed(exited(1), 2, "b"), failed(exited(1), 2, "b")},
     2,
     allowed(9),
     true,
     0},
    {"and at once",
     {failed(exited(1), 2), failed(exited(1), 11), failed(exited(1), 2)},
     2,
     allowed(9),
     true,
     0},
    {"killing is done by others",
     {failed(killed(SIGKILL), 2), failed(killed(SIGKILL), 2), failed(killed(SIGKILL), 2)},
     2,
     allowed(9),
     true,
     0},
    {"an abort is not",
     {failed(killed(SIGABRT), 2), failed(killed(SIGABRT), 2), failed(killed(SIGABRT), 2)},
     2,
     allowed(9),
     false,
     134},
};

TEST(RestartPolicy, DecidesByTheTable) {
  for (const Case& c : kCases) {
    const Decision decision = decide(c.attempts, c.restarts, c.rules);
    EXPECT_EQ(decision.next == Decision::Next::kRestart, c.is_restart) << c.name;
    EXPECT_EQ(decision.exit_code, c.exit_code) << c.name;
  }
}

TEST(RestartPolicy, NamesTheReasonOfAnEarlyEnd) {
  EXPECT_EQ(decide({failed(exited(1)), failed(exited(1))}, 1, allowed(1)).reason,
            "1 restart used (--max-restarts)");
  EXPECT_EQ(
      decide({failed(exited(1), 1), failed(exited(1), 1), failed(exited(1), 1)}, 2, allowed(9))
          .reason,
      "the same failure 3 times in a row, each within 10 s of the start");
  EXPECT_EQ(decide({failed(exited(1))}, 0, allowed(0)).reason, "");
}

TEST(RestartPolicy, DoublesTheBackoffUpToAMinute) {
  RestartRules rules = allowed(100);
  rules.backoff = duration<double>(2);
  const double expected[] = {2, 4, 8, 16, 32, 60, 60};
  for (int restarts = 0; restarts < 7; ++restarts) {
    EXPECT_EQ(decide({failed(exited(1))}, restarts, rules).delay.count(), expected[restarts])
        << restarts;
  }
  EXPECT_EQ(decide({failed(exited(1))}, 99, rules).delay.count(), 60);
}

}  // namespace
