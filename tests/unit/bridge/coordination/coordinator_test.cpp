#include "bridge/coordination/coordinator.h"

#include <csignal>

#include <gtest/gtest.h>

using namespace torchbridge;
using std::chrono::seconds;

namespace {

// A run whose agents are played by the test, with a clock of its own.
class PlayedRun {
 public:
  explicit PlayedRun(RunShape shape) : coordinator_(rules_of(shape), report(), 0, now_) {}

  void join(MemberId id, int order = -1) {
    Join join;
    join.run_id = "run";
    join.shape = shape_;
    join.host = "n" + std::to_string(id);
    join.pid = 100 + id;
    join.order = order;
    coordinator_.join(id, join, now_);
  }
  void ready(MemberId id) {
    coordinator_.receive(id, Ready{{"10.0.0." + std::to_string(id), 1000 + id}}, now_);
  }
  void join_ready(MemberId id) {
    join(id);
    ready(id);
  }
  void ended(MemberId id, int wait_status = 0, bool by_agent = false) {
    coordinator_.receive(id, AttemptEnded{report_with(id, wait_status, by_agent)}, now_);
  }
  void failed(MemberId id, int wait_status) {
    coordinator_.receive(id, WorkerFailed{report_with(id, wait_status, false).failures.front()},
                         now_);
  }
  void lose(MemberId id) {
    coordinator_.lose(id, Coordinator::HowLost::kClosed, "closed its connection", now_);
  }
  void pass(seconds time) {
    now_ += time;
    coordinator_.pass_time(now_);
  }
  Coordinator& operator*() { return coordinator_; }
  Coordinator* operator->() { return &coordinator_; }
  Coordinator::Time now() const { return now_; }

  // What was sent since the last call, as "MEMBER:KIND"; keeps the rounds.
  std::vector<std::string> sent() {
    std::vector<std::string> texts;
    for (const auto& outgoing : coordinator_.take_outgoing()) {
      std::string kind = "?";
      if (std::holds_alternative<Welcome>(outgoing.message)) continue;
      if (const auto* round = std::get_if<StartRound>(&outgoing.message)) {
        rounds_[outgoing.to] = *round;
        kind = "start";
      }
      if (std::holds_alternative<StopWorkers>(outgoing.message)) kind = "stop";
      if (std::holds_alternative<BeginExitBarrier>(outgoing.message)) kind = "barrier";
      if (const auto* end = std::get_if<EndRun>(&outgoing.message))
        kind = "end " + std::to_string(end->exit_code);
      if (std::holds_alternative<Rejected>(outgoing.message)) kind = "rejected";
      texts.push_back(std::to_string(outgoing.to) + ":" + kind);
    }
    return texts;
  }
  const StartRound& round(MemberId id) { return rounds_[id]; }

 private:
  CoordinatorRules rules_of(RunShape shape) {
    shape_ = shape;
    CoordinatorRules rules;
    rules.shape = shape;
    rules.doubt = "others may not find it";
    rules.run_id = "run";
    return rules;
  }
  static RunReport report() {
    RunReport report;
    report.host = "n1";
    return report;
  }
  static AttemptReport report_with(MemberId id, int wait_status, bool by_agent) {
    AttemptReport attempt;
    if (wait_status == 0) return attempt;
    WorkerReport worker;
    worker.rank = id;
    worker.host = "n" + std::to_string(id);
    worker.wait_status = wait_status;
    worker.is_ended_by_agent = by_agent;
    attempt.failures.push_back(worker);
    return attempt;
  }

  Coordinator::Time now_{};
  RunShape shape_;
  Coordinator coordinator_;
  std::map<MemberId, StartRound> rounds_;
};

using Texts = std::vector<std::string>;
constexpr int kExit1 = 1 << 8, kExit75 = 75 << 8;

// Two agents of a fixed number, whose workers run.
PlayedRun running(int max_restarts = 0) {
  PlayedRun run({2, 2, 2, max_restarts});
  run.join_ready(1);
  run.join_ready(2);
  EXPECT_EQ(run.sent(), (Texts{"1:start", "2:start"}));
  return run;
}

TEST(Coordinator, BeginsWhenAllAreReady) {
  PlayedRun run({2, 2, 2, 0});
  run.join_ready(1);
  run.join(2);
  EXPECT_EQ(run.sent(), Texts{});
  run.ready(2);
  EXPECT_EQ(run.sent(), (Texts{"1:start", "2:start"}));
  EXPECT_EQ(run.round(1).store, (Endpoint{"10.0.0.1", 1001})) << "that of the agent with rank 0";
  EXPECT_EQ(run.round(2).store, run.round(1).store);
  EXPECT_EQ(run.round(2).ranks.first_rank, 1);
}

TEST(Coordinator, WaitsForTheLastCallWithMoreThanTheFewestNodes) {
  PlayedRun run({2, 4, 4, 0});
  run.join_ready(1);
  run.join_ready(2);
  run.pass(seconds(29));
  run.join_ready(3);
  EXPECT_EQ(run.sent(), Texts{});
  run.pass(seconds(1));
  EXPECT_EQ(run.sent(), (Texts{"1:start", "2:start", "3:start"}));
}

TEST(Coordinator, BeginsTheLastCallAnewWhenANodeIsLost) {
  PlayedRun run({2, 4, 4, 0});
  run.join_ready(1);
  run.join_ready(2);
  run.pass(seconds(20));
  run.lose(2);
  run.pass(seconds(15));
  run.join_ready(3);
  EXPECT_EQ(run.sent(), Texts{});
  run.pass(seconds(30));
  EXPECT_EQ(run.sent(), (Texts{"1:start", "3:start"}));
}

TEST(Coordinator, EndsWithTooFewNodesAndNamesThem) {
  PlayedRun run({3, 3, 3, 0});
  run.join_ready(1);
  run.pass(seconds(10));
  EXPECT_EQ(
      run->take_lines(),
      (Texts{
          "waiting for nodes, at most 600 s: so far 1 node of 3: n1 (pid 101); others may not find "
          "it"}));
  run.pass(seconds(590));
  EXPECT_EQ(run.sent(), (Texts{"1:end 1"}));
  EXPECT_EQ(
      run->take_lines(),
      (Texts{"only 1 node of 3: n1 (pid 101) joined within 600 s (join_timeout in --rdzv-conf)"}));
}

TEST(Coordinator, EndsWith0WhenAllWorkersHave) {
  PlayedRun run = running();
  run.ended(1);
  EXPECT_EQ(run.sent(), (Texts{"2:barrier"}));
  run.ready(1);  // for a next round, should there be one
  EXPECT_EQ(run.sent(), Texts{});
  run.ended(2);
  EXPECT_EQ(run.sent(), (Texts{"1:end 0", "2:end 0"}));
  EXPECT_TRUE(run->has_ended());
}

TEST(Coordinator, AFailureStopsTheOthersAndUsesARestart) {
  PlayedRun run = running(1);
  run.failed(2, kExit1);
  EXPECT_EQ(run.sent(), (Texts{"1:stop"}));
  run.ended(1, SIGTERM, true);
  run.ready(1);
  run.ended(2, kExit1);
  EXPECT_EQ(run->take_lines(), (Texts{"restart 1 of 1"}));
  run.ready(2);
  EXPECT_EQ(run.sent(), (Texts{"1:start", "2:start"}));
  EXPECT_EQ(run.round(1).restart_count, 1);
  EXPECT_EQ(run.round(1).round, 1);
  run.failed(1, 9);
  run.ended(1, 9);
  run.ended(2, SIGTERM, true);
  EXPECT_EQ(run.sent(), (Texts{"2:stop", "1:end 137", "2:end 137"}));
  EXPECT_EQ(run->report().attempts.back().failures.front().rank, 1);
}

TEST(Coordinator, ALostNodeUsesNoRestartAlsoWhereItsPeersFailFirst) {
  PlayedRun run({1, 2, 2, 0});
  run.join_ready(1);
  run.join_ready(2);
  EXPECT_EQ(run.sent(), (Texts{"1:start", "2:start"}));
  run.failed(1, kExit1);  // its connection to the lost node is broken
  run.ended(1, kExit1);
  run.ready(1);
  EXPECT_EQ(run.sent(), (Texts{"2:stop"}));
  run.pass(seconds(10));
  EXPECT_EQ(run.sent(), Texts{}) << "the other node is not known to be lost yet";
  run.lose(2);
  EXPECT_EQ(run.sent(), (Texts{"1:start"}));
  EXPECT_EQ(run.round(1).ranks.world_size, 1);
  EXPECT_EQ(run.round(1).restart_count, 0);
}

TEST(Coordinator, AFailureUsesARestartAlsoWhereANodeIsLostAfterIt) {
  PlayedRun run({1, 2, 2, 0});
  run.join_ready(1);
  run.join_ready(2);
  run.failed(1, kExit1);
  run.ended(1, kExit1);
  run->receive(2, Stopping{}, run.now());  // it is there, so it is not what rank 1 failed of
  run->take_outgoing();
  run.lose(2);
  EXPECT_EQ(run.sent(), (Texts{"1:end 1"}));
}

TEST(Coordinator, TheReportAndStatusNameALostNodeAsTheCauseAndNotAWorkerThatWasEnded) {
  PlayedRun run = running();
  run.lose(2);
  run.ended(1, SIGTERM, true);
  const AttemptReport& attempt = run->report().attempts.back();
  EXPECT_EQ(attempt.interruption, "node n2 (pid 102) is lost: it closed its connection");
  EXPECT_NE(summary_text(run->report()).find("root cause: node n2 (pid 102) is lost: it closed"),
            std::string::npos);
  EXPECT_NE(run->status_json().find("\"last_failure\": \"node n2 (pid 102) is lost"),
            std::string::npos);
}

TEST(Coordinator, ANodeThatJoinsIsNoFailure) {
  PlayedRun run({1, 2, 2, 0});
  run.join_ready(1);
  run.pass(seconds(30));
  run.join_ready(2);
  run.ended(1, SIGTERM, true);
  EXPECT_NE(run->status_json().find("\"last_failure\": \"\""), std::string::npos)
      << run->status_json();
}

TEST(Coordinator, OneThatCannotTakePartIsSentAwayAndTheOthersGoOn) {
  PlayedRun run({2, 3, 3, 1});
  run.join_ready(1);
  run.join_ready(2);
  run.pass(seconds(30));
  EXPECT_EQ(run.sent(), (Texts{"1:start", "2:start"}));
  run.join(3);
  run->receive(3, AttemptEnded{{}, StartFailure{1, Error{"no such address"}}}, run.now());
  EXPECT_EQ(run.sent(), (Texts{"3:end 1"}));
  EXPECT_EQ(run->take_lines(), (Texts{"node n3 (pid 103) cannot take part: no such address"}));
  run.failed(1, kExit1);
  run.ended(1, kExit1);
  run.ended(2, SIGTERM, true);
  run.ready(1);
  run.ready(2);
  EXPECT_EQ(run.sent(), (Texts{"2:stop", "1:start", "2:start"}));
}

TEST(Coordinator, WaitsForAnAgentThatDoesNotGetReadyNoLongerThanForTheLastCall) {
  PlayedRun run({2, 3, 3, 1});
  run.join_ready(1);
  run.join_ready(2);
  run.join(3);
  run.pass(seconds(30));
  EXPECT_EQ(run.sent(), (Texts{"1:start", "2:start"}));
  run.failed(1, kExit1);
  run.ended(1, kExit1);
  run.ended(2, SIGTERM, true);
  run.ready(1);
  run.ready(2);
  EXPECT_EQ(run.sent(), (Texts{"2:stop"}));
  EXPECT_GT(run->next_deadline(), run.now()) << "it must not be called again and again";
  run.pass(seconds(30));
  EXPECT_EQ(run.sent(), (Texts{"1:start", "2:start"}));
}

TEST(Coordinator, NeverSucceedsWhereAWorkerThatDoesNotEndKeepsTheRunFromGoingOn) {
  PlayedRun run({1, 2, 2, 3});
  run.join_ready(1);
  run.join_ready(2);
  run.sent();
  run.lose(2);
  AttemptReport attempt;
  WorkerReport& worker = attempt.failures.emplace_back();
  worker.wait_status = SIGKILL;
  worker.is_stuck = worker.is_ended_by_agent = true;
  attempt.can_restart = false;
  run->receive(1, AttemptEnded{attempt}, run.now());
  EXPECT_EQ(run.sent(), (Texts{"1:stop", "1:end 1"}));
}

TEST(Coordinator, AnAgentThatLeavesAfterAFailureDoesNotMakeItFree) {
  PlayedRun run({1, 2, 2, 0});
  run.join_ready(1);
  run.join_ready(2);
  run.failed(1, kExit1);
  run.ended(1, kExit1);
  run->receive(2, Stopping{}, run.now());
  run->receive(2, Leave{SIGTERM}, run.now());
  run->take_outgoing();
  run.ended(2, SIGTERM, true);
  EXPECT_EQ(run.sent(), (Texts{"1:end 1", "2:end 1"}));
}

TEST(Coordinator, BeginsNoRoundThatAnotherOneIsToBegin) {
  PlayedRun run({1, 2, 2, 0});
  run.join_ready(1);
  run->hold();
  run.join_ready(2);
  run.pass(seconds(1000));
  EXPECT_EQ(run.sent(), Texts{});
  EXPECT_EQ(run->next_deadline(), Coordinator::Time::max());
}

TEST(Coordinator, RejectsAnAgentWithWhichTheRanksWouldBeTooMany) {
  PlayedRun run({3, 3, 3, 0});
  const auto join_with = [&](MemberId id, int workers) {
    Join join;
    join.run_id = "run";
    join.shape = {3, 3, 3, 0};
    join.workers = workers;
    run->join(id, join, run.now());
  };
  join_with(1, 6'000'000);
  join_with(2, 5'000'000);
  EXPECT_EQ(run.sent(), (Texts{"2:rejected"}));
  run.lose(1);
  join_with(3, 5'000'000);
  join_with(4, 5'000'000);
  EXPECT_EQ(run.sent(), Texts{});
}

TEST(Coordinator, WaitsForANodeInPlaceOfOneThatIsLost) {
  PlayedRun run = running();
  run.lose(2);
  EXPECT_EQ(run.sent(), (Texts{"1:stop"}));
  run.ended(1, SIGTERM, true);
  run.ready(1);
  EXPECT_EQ(run.sent(), Texts{});
  run.join_ready(3);
  EXPECT_EQ(run.sent(), (Texts{"1:start", "3:start"}));
}

TEST(Coordinator, ANodeThatJoinsBeginsANewRoundWhereThereIsAPlace) {
  PlayedRun run({1, 3, 2, 0});
  run.join_ready(1);
  run.pass(seconds(30));
  EXPECT_EQ(run.sent(), (Texts{"1:start"}));
  run.join_ready(2);
  EXPECT_EQ(run.sent(), (Texts{"1:stop"}));
  run.ended(1, SIGTERM, true);
  run.ready(1);
  EXPECT_EQ(run.sent(), (Texts{"1:start", "2:start"}));
  run.join_ready(3);
  EXPECT_EQ(run.sent(), Texts{}) << "a spare";
  run.lose(1);
  run.ended(2, SIGTERM, true);
  run.ready(2);
  EXPECT_EQ(run.sent(), (Texts{"2:stop", "3:start", "2:start"}));
  EXPECT_EQ(run.round(3).ranks.first_rank, 0) << "in the place of the lost one";
  EXPECT_EQ(run.round(2).ranks.first_rank, 1);
}

TEST(Coordinator, NeverSucceedsWhereOnlyTheAgentEndedWorkers) {
  PlayedRun run = running();
  run.ended(1, SIGKILL, true);
  run.ended(2, SIGKILL, true);
  EXPECT_FALSE(run->has_ended());
}

TEST(Coordinator, PassesARequeueOn) {
  PlayedRun run = running(3);
  run.ended(1, kExit75);
  EXPECT_EQ(run.sent(), (Texts{"2:stop"}));
  run.ended(2, kExit75);
  EXPECT_EQ(run.sent(), (Texts{"1:end 75", "2:end 75"}));
}

TEST(Coordinator, AStopOfItsOwnProcessEndsTheRun) {
  PlayedRun run = running(3);
  run->stop(SIGTERM, run.now());
  EXPECT_EQ(run.sent(), (Texts{"1:stop", "2:stop"}));
  run.ended(1, SIGTERM, true);
  run.ended(2, SIGTERM, true);
  EXPECT_EQ(run.sent(), (Texts{"1:end 143", "2:end 143"}));
}

TEST(Coordinator, AProgramThatCannotBeStartedEndsTheRunWithItsCode) {
  PlayedRun run = running(3);
  run->receive(2, AttemptEnded{{}, StartFailure{127, Error{"cannot run 'x'"}}}, run.now());
  EXPECT_EQ(run.sent(), (Texts{"1:stop"}));
  run.ended(1, SIGTERM, true);
  EXPECT_EQ(run.sent(), (Texts{"1:end 127", "2:end 127"}));
  EXPECT_EQ(run->take_lines(), (Texts{"n2: cannot run 'x'"}));
  // And not the worker that is ended because of it.
  const std::string summary = summary_text(run->report());
  EXPECT_NE(summary.find("root cause: n2: cannot run 'x'\n  ended because of it: rank 1"),
            std::string::npos)
      << summary;
  EXPECT_EQ(summary.find("not restarted"), std::string::npos) << summary;
}

TEST(Coordinator, BacksOffBeforeARestart) {
  CoordinatorRules rules;
  rules.shape = {1, 1, 1, 2};
  rules.run_id = "run";
  rules.restart_backoff = seconds(5);
  Coordinator coordinator(rules, {}, 0, {});
  Join join;
  join.run_id = "run";
  join.shape = rules.shape;
  coordinator.join(1, join, {});
  coordinator.receive(1, Ready{}, {});
  EXPECT_EQ(coordinator.take_outgoing().size(), 2u);
  AttemptReport attempt;
  attempt.failures.emplace_back();
  attempt.failures.back().wait_status = kExit1;
  coordinator.receive(1, AttemptEnded{attempt}, {});
  coordinator.receive(1, Ready{}, {});
  EXPECT_EQ(coordinator.take_outgoing().size(), 0u);
  EXPECT_EQ(coordinator.next_deadline(), Coordinator::Time(seconds(5)));
  coordinator.pass_time(Coordinator::Time(seconds(5)));
  EXPECT_EQ(coordinator.take_outgoing().size(), 1u);
}

TEST(Coordinator, RejectsATakenNodeRankAndANodeAfterTheEnd) {
  PlayedRun run({2, 2, 2, 0});
  run.join(1, 0);
  run.join(2, 0);
  EXPECT_EQ(run.sent(), (Texts{"2:rejected"}));
  run.join(3, 1);
  run.ready(1);
  run.ready(3);
  run.ended(1);
  run.ended(3);
  (void)run.sent();
  run.join(4, 1);
  EXPECT_EQ(run.sent(), (Texts{"4:rejected"}));
}

TEST(Coordinator, CorrectsTimesByTheClocksOfTheNodes) {
  PlayedRun run = running();
  run->set_clock(2, 100, 0.001);  // its clock is 100 s ahead
  AttemptReport first, second;
  WorkerReport worker;
  worker.wait_status = kExit1;
  worker.rank = 0;
  worker.host = "n1";
  worker.time = std::chrono::system_clock::time_point(seconds(1050));
  first.failures = {worker};
  worker.rank = 1;
  worker.host = "n2";
  // 1049 by the first one's clock.
  worker.time = std::chrono::system_clock::time_point(seconds(1149));
  second.failures = {worker};
  run->receive(1, AttemptEnded{first}, run.now());
  run->receive(2, AttemptEnded{second}, run.now());
  const WorkerReport& root = run->report().attempts.back().failures.front();
  EXPECT_EQ(root.rank, 1);
  EXPECT_EQ(root.clock, "n1");
  EXPECT_EQ(root.time_error, 0.001);
}

TEST(Coordinator, SendsAgentsTheReasonWhyWorkersAreStoppedAndTheRunEnds) {
  PlayedRun run = running();
  run.failed(2, kExit1);
  run.ended(2, kExit1);
  run.ended(1, SIGTERM, true);
  std::string stop, end;
  for (const auto& outgoing : run->take_outgoing()) {
    if (const auto* message = std::get_if<StopWorkers>(&outgoing.message)) stop = message->reason;
    if (const auto* message = std::get_if<EndRun>(&outgoing.message)) end = message->reason;
  }
  EXPECT_NE(stop.find("rank 2 on n2, at "), stop.npos) << stop;
  EXPECT_EQ(end, "the run failed: the agent on n1 prints the reason");
}

// A launcher gives a signal to all agents: the others wait for theirs.
TEST(Coordinator, NamesASignalAsTheReasonToStopWorkers) {
  const auto is_for_signal = [](PlayedRun& run) {
    bool is_stop = false, is_signal = false;
    for (const auto& outgoing : run->take_outgoing()) {
      const auto* message = std::get_if<StopWorkers>(&outgoing.message);
      if (message) is_stop = true, is_signal = message->for_signal;
    }
    EXPECT_TRUE(is_stop);
    return is_signal;
  };
  PlayedRun stopped = running(), left = running(), failed = running();
  stopped->stop(SIGINT, stopped.now());
  left->receive(2, Leave{SIGINT}, left.now());
  failed.failed(2, kExit1);
  EXPECT_TRUE(is_for_signal(stopped));
  EXPECT_TRUE(is_for_signal(left));
  EXPECT_FALSE(is_for_signal(failed));
}

}  // namespace
