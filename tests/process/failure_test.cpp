// Ranks that die or stop during training: the others end soon, and one of them reports which rank
// it was.
#include <sys/socket.h>

#include <csignal>

#include "bridge/net/address.h"
#include "tests/support/paths.h"
#include "tests/support/ranks.h"
#include "tests/support/sanitizer.h"

namespace {

namespace fs = std::filesystem;

class Failure : public testing::Test {
 protected:
  Words endless(const Words& more = {}) {
    Words words = trainer({"--epochs", "1000000", "--metrics", curve()});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::string curve() const { return folder_ / "curve.jsonl"; }
  void wait_until_training() {
    ASSERT_TRUE(eventually([&] { return fs::exists(curve()) && fs::file_size(curve()) > 2000; }));
  }
  TemporaryFolder folder_;
  const std::string here_ = " on " + torchbridge::host_name();
};

TEST_F(Failure, AKilledRankIsNamedByOneOfTheOthers) {
  constexpr int kRanks = 4;
  // Over shared memory, there without a heartbeat, and over connections alone.
  const Words ways[kRanks] = {{}, {}, {"--heartbeat-timeout", "0"}, {"--backend", "gloo"}};
  for (int victim = 0; victim < kRanks; ++victim) {
    fs::remove(curve());
    Ranks ranks(kRanks, endless(ways[victim]));
    wait_until_training();
    ranks.kill_rank(victim, SIGKILL);
    const std::vector<int> codes = ranks.wait(std::chrono::seconds(8));
    for (int rank = 0; rank < kRanks; ++rank)
      EXPECT_EQ(codes[rank], rank == victim ? 128 + SIGKILL : 1) << rank;
    EXPECT_TRUE(
        contains(ranks.errors(), "the connection to rank " + std::to_string(victim) + here_));
    EXPECT_EQ(lines_in(ranks.errors()), 1) << ranks.errors();
  }
}

// The store is lost with rank 0, and rank 1 cannot report either.
TEST_F(Failure, ALaterRankReportsWhenRanksZeroAndOneAreKilled) {
  Ranks ranks(4, endless());
  wait_until_training();
  ranks.kill_rank(1, SIGKILL);
  ranks.kill_rank(0, SIGKILL);
  EXPECT_EQ(ranks.wait(std::chrono::seconds(8)),
            (std::vector<int>{128 + SIGKILL, 128 + SIGKILL, 1, 1}));
  EXPECT_TRUE(contains(ranks.errors(), "the connection to rank 0" + here_ + " was lost"));
  EXPECT_EQ(lines_in(ranks.errors()), 1) << ranks.errors();
}

// The others have reported it when it continues, and it prints nothing.
TEST_F(Failure, AStoppedRankIsNamedAfterTheTimeoutAndContinuesWithoutAMessage) {
  for (const int stopped : {1, 0}) {
    Ranks ranks(3, endless({"--timeout", "2"}));
    wait_until_training();
    ranks.kill_rank(stopped, SIGSTOP);
    EXPECT_TRUE(eventually([&] { return !ranks.errors().empty(); }, std::chrono::seconds(15)));
    ranks.kill_rank(stopped, SIGCONT);
    EXPECT_EQ(ranks.wait(std::chrono::seconds(8)), (std::vector<int>{1, 1, 1}));
    EXPECT_TRUE(contains(ranks.errors(), "rank " + std::to_string(stopped) + here_ +
                                             " did not take part in a collective in time"));
    EXPECT_EQ(lines_in(ranks.errors()), 1) << ranks.errors();
    fs::remove(curve());
  }
}

// NCCL's collectives return after an abort without an error and with wrong values.
TEST_F(Failure, NumbersOfAnAbortedCollectiveAreNotInTheMetrics) {
  const Words command = {"--max-steps", "6", "--eval-every", "3", "--metrics", curve()};
  Ranks whole(2, trainer(command));
  expect_success(whole);
  const std::vector<double> right = losses(curve());
  std::size_t fewest = right.size(), most = 0;
  // In a step: the gradients, or its numbers; in the evaluation.
  for (int number = 10; number <= 20; number += 2) {
    fs::remove(curve());
    Words words = trainer(command);
    words.insert(words.end(), {"--backend", "aborted"});
    Ranks ranks(
        2, words,
        {{"LD_LIBRARY_PATH", in_build("tests/programs")}, {"ABORTED_AT", std::to_string(number)}});
    expect_one_line(ranks, "the backend's connections between the ranks failed");
    const std::vector<double> written =
        fs::exists(curve()) ? losses(curve()) : std::vector<double>();
    ASSERT_LT(written.size(), right.size());
    for (std::size_t i = 0; i < written.size(); ++i)
      EXPECT_EQ(written[i], right[i]) << "all-reduce " << number;
    fewest = std::min(fewest, written.size());
    most = std::max(most, written.size());
  }
  EXPECT_LT(fewest, most);  // so aborts came in different steps
}

// The agent, or srun's plugin, reads it as the reason of the failure.
TEST_F(Failure, ARankWritesItsErrorToItsErrorFile) {
  const std::string missing = folder_ / "missing";
  const auto file_of = [&](const char* name) {
    return Variables{{"TORCHELASTIC_ERROR_FILE", folder_ / name}};
  };
  const int port = free_port();
  Ranks first({0}, 2, port, endless(), file_of("0.json"));
  Ranks second({1}, 2, port, endless({"--data", missing}), file_of("1.json"));
  EXPECT_EQ(first.wait(std::chrono::seconds(20)), std::vector<int>{1});
  EXPECT_EQ(second.wait(std::chrono::seconds(20)), std::vector<int>{1});
  const std::string begin = "trainer: rank 1: ", line = second.errors();
  ASSERT_TRUE(line.starts_with(begin) && line.ends_with('\n')) << line;
  const std::string message = line.substr(begin.size(), line.size() - begin.size() - 1);
  EXPECT_TRUE(contains(message, missing));
  EXPECT_TRUE(folder_.read("1.json").starts_with(R"({"message": {"message": ")" + message + "\", "))
      << folder_.read("1.json");
  EXPECT_FALSE(fs::exists(folder_ / "0.json"));  // it only lost the other
}

TEST_F(Failure, ARankThatASignalEndsWritesItToItsErrorFile) {
  if (kIsSanitized) GTEST_SKIP() << "a sanitizer ends the process itself";
  const std::string file = folder_ / "error.json";
  Ranks ranks(1, endless(), {{"TORCHELASTIC_ERROR_FILE", file}});
  wait_until_training();
  ranks.kill_rank(0, SIGSEGV);
  EXPECT_EQ(ranks.wait(std::chrono::seconds(20)), std::vector<int>{128 + SIGSEGV});
  EXPECT_TRUE(contains(folder_.read("error.json"),
                       R"({"message": {"message": "SIGSEGV: Segmentation fault, sent by)"));
  EXPECT_TRUE(contains(folder_.read("error.json"), "/trainer(+0x"));
  EXPECT_EQ(ranks.errors(), "");
}

// Long before the timeout of the collective, which is ten minutes.
TEST_F(Failure, AStoppedRankIsNamedByTheHeartbeatAndContinuesWithoutAMessage) {
  for (const int stopped : {1, 0}) {
    Ranks ranks(3, endless({"--heartbeat-timeout", "1"}));
    wait_until_training();
    ranks.kill_rank(stopped, SIGSTOP);
    EXPECT_TRUE(eventually([&] { return !ranks.errors().empty(); }, std::chrono::seconds(5)));
    ranks.kill_rank(stopped, SIGCONT);
    EXPECT_EQ(ranks.wait(std::chrono::seconds(8)), (std::vector<int>{1, 1, 1}));
    EXPECT_TRUE(contains(ranks.errors(), "rank " + std::to_string(stopped) + here_ +
                                             (stopped == 0 ? " " : " sent no heartbeat for 1 s")));
    EXPECT_TRUE(contains(ranks.errors(), ": process stopped")) << ranks.errors();
    // Rank 0 sends the losses to the others. Where it is stopped itself each finds that out alone,
    // and the second reports it too where its timeout ends before it notices the end of the first.
    EXPECT_LE(lines_in(ranks.errors()), stopped == 0 ? 2 : 1) << ranks.errors();
    EXPECT_EQ(lines_in(ranks.error(stopped)), 0) << ranks.errors();
    fs::remove(curve());
  }
}

// With the default timeout.
TEST_F(Failure, AStoppedRankIsNamedWithinFiveSeconds) {
  Ranks ranks(4, endless());
  wait_until_training();
  ranks.kill_rank(2, SIGSTOP);
  EXPECT_TRUE(
      eventually([&] { return contains(ranks.errors(), "rank 2"); }, std::chrono::seconds(5)));
  ranks.kill_rank(2, SIGKILL);
  std::vector<int> expected(4, 1);
  expected[2] = 128 + SIGKILL;
  EXPECT_EQ(ranks.wait(std::chrono::seconds(8)), expected);
}

// The connections are there before the ranks, and stay until the end: 64 that send nothing, and
// others that send bytes that no store understands.
TEST_F(Failure, OtherConnectionsToTheStoreDoNotKeepRanksFromJoining) {
  const int port = free_port();
  const torchbridge::Endpoint store{"127.0.0.1", port};
  Ranks first({0}, 3, port, trainer({"--max-steps", "2"}));
  std::vector<torchbridge::Socket> connections;
  const auto connect_and_send = [&](const std::string& text) {
    auto socket = torchbridge::connect_to(store, std::chrono::seconds(1));
    if (!socket) return false;
    if (!text.empty()) send(socket->descriptor(), text.data(), text.size(), MSG_NOSIGNAL);
    connections.push_back(*std::move(socket));
    return true;
  };
  ASSERT_TRUE(eventually([&] { return connect_and_send(""); }));
  for (int i = 0; i < 63; ++i) EXPECT_TRUE(connect_and_send(""));
  for (int byte = 0; byte < 256; byte += 5)
    EXPECT_TRUE(connect_and_send(std::string(1 + byte, static_cast<char>(byte))));
  for (int i = 0; i < 64; ++i)
    EXPECT_TRUE(torchbridge::connect_to(store, std::chrono::seconds(1)));  // as a port scan
  Ranks others({1, 2}, 3, port, trainer({"--max-steps", "2"}));
  EXPECT_EQ(others.wait(), (std::vector<int>{0, 0})) << others.errors();
  EXPECT_EQ(first.wait(), std::vector<int>{0}) << first.errors();
}

// A web browser, a port scanner, and a client that sends nothing.
TEST_F(Failure, OtherConnectionsToTheStoreDoNotDisturbTraining) {
  Ranks ranks(2, endless({"--max-steps", "400"}));
  wait_until_training();
  const torchbridge::Endpoint store{"127.0.0.1", ranks.port()};
  const auto idle = torchbridge::connect_to(store, std::chrono::seconds(1));
  ASSERT_TRUE(idle);
  for (const std::string& garbage : {std::string("GET / HTTP/1.0\r\n\r\n"),
                                     std::string(100'000, '\xff'), std::string(5, '\0')}) {
    const auto socket = torchbridge::connect_to(store, std::chrono::seconds(1));
    ASSERT_TRUE(socket);
    send(socket->descriptor(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
  }
  EXPECT_EQ(ranks.wait(), (std::vector<int>{0, 0})) << ranks.errors();
  EXPECT_EQ(losses(curve()).size(), 400u);
}

TEST_F(Failure, ARankOfAnotherRunIsRejectedAtOnce) {
  const int port = free_port();
  Ranks served({0}, 2, port, endless(), {{"TORCHELASTIC_RUN_ID", "one"}});
  ASSERT_TRUE(eventually([&] {
    return static_cast<bool>(torchbridge::connect_to({"127.0.0.1", port}, std::chrono::seconds(1)));
  }));
  Ranks other({1}, 2, port, endless(), {{"TORCHELASTIC_RUN_ID", "two"}});
  // One second from its connection to the store, and the time that a busy machine takes to start a
  // process.
  EXPECT_EQ(other.wait(std::chrono::seconds(5)), std::vector<int>{1});
  EXPECT_TRUE(contains(other.errors(), "belongs to run 'one/0', but this is run 'two/0'"));
  served.kill_rank(0, SIGKILL);
  served.wait();
}

// The training and its checkpoint are worth more than the curve.
TEST_F(Failure, AFullDiskOfMetricsOrSampleLogIsReportedAndTrainingContinues) {
  for (const char* option : {"--metrics", "--sample-log"}) {
    Ranks ranks(2, trainer({"--max-steps", "20", "--checkpoint-dir", folder_ / option, option,
                            "/dev/full"}));
    EXPECT_EQ(ranks.wait(), (std::vector<int>{1, 1}));
    EXPECT_TRUE(std::filesystem::exists(folder_ / option / "step-00000020/DONE"));
    EXPECT_TRUE(contains(ranks.errors(),
                         "trainer: cannot write '/dev/full': No space left on device; training "
                         "continues, and records are lost"));
    EXPECT_TRUE(contains(ranks.errors(), "'/dev/full' is incomplete"));
    EXPECT_EQ(lines_in(ranks.errors()), 2) << ranks.errors();
  }
}

TEST_F(Failure, TwoRunsAtOnceDoNotMix) {
  Ranks first(2, trainer({"--max-steps", "60", "--metrics", folder_ / "first"}));
  Ranks second(2, trainer({"--max-steps", "60", "--metrics", folder_ / "second"}));
  EXPECT_EQ(first.wait(), (std::vector<int>{0, 0})) << first.errors();
  EXPECT_EQ(second.wait(), (std::vector<int>{0, 0})) << second.errors();
  EXPECT_EQ(losses(folder_ / "first"), losses(folder_ / "second"));
}

TEST_F(Failure, TwoRunsDoNotShareACheckpointFolder) {
  Ranks first(1, endless({"--checkpoint-dir", folder_ / "runs"}));
  wait_until_training();
  Ranks second(2, trainer({"--checkpoint-dir", folder_ / "runs"}));
  EXPECT_EQ(second.wait(std::chrono::seconds(10)), (std::vector<int>{1, 1}));
  EXPECT_TRUE(contains(second.errors(), "is in use by another run"));
  first.kill_rank(0, SIGKILL);
}

// A killed run leaves no lock.
TEST_F(Failure, TwoRunsDoNotShareAMetricsOrSampleLogFile) {
  const std::string sample_log = folder_ / "sample_log";
  Ranks first(1, endless({"--sample-log", sample_log}));
  wait_until_training();
  const std::pair<const char*, std::string> kFiles[] = {{"--metrics", curve()},
                                                        {"--sample-log", sample_log}};
  for (const auto& [option, file] : kFiles) {
    Ranks second(2, trainer({"--max-steps", "2", option, file}));
    expect_one_line(
        second, "cannot write '" + file +
                    "': another run, or another option of this run, writes to it; give another " +
                    option);
  }
  first.kill_rank(0, SIGKILL);
  first.wait();
  EXPECT_GT(losses(curve()).size(), 2u) << "of the first run";
  Ranks third(2, trainer({"--max-steps", "2", "--metrics", curve(), "--sample-log", sample_log}));
  expect_success(third);
  EXPECT_EQ(losses(curve()).size(), 2u);
}

TEST_F(Failure, WithoutALauncherItTrainsAlone) {
  Ranks alone(1, trainer({"--max-steps", "3"}),
              {{"RANK", "unset"},
               {"WORLD_SIZE", "unset"},
               {"LOCAL_RANK", "unset"},
               {"LOCAL_WORLD_SIZE", "unset"},
               {"MASTER_ADDR", "unset"},
               {"MASTER_PORT", "unset"}});
  EXPECT_EQ(alone.wait(), std::vector<int>{0}) << alone.errors();
  EXPECT_TRUE(contains(alone.out(0), "trainer: 3 steps, accuracy"));
}

}  // namespace
