// A signal to one rank stops all ranks at the same step, and the run resumes with the same results
// as without a stop.
#include <chrono>
#include <csignal>

#include <nlohmann/json.hpp>

#include "bridge/net/address.h"
#include "tests/support/paths.h"
#include "tests/support/ranks.h"

namespace {

namespace fs = std::filesystem;
constexpr int kRequeue = 75;

class Stop : public testing::Test {
 protected:
  void SetUp() override { signal(SIGHUP, SIG_DFL); }  // ignored by nohup
  // A small model, so that steps are short.
  Words command(const std::string& name, const Words& more) const {
    Words words =
        trainer({"--task", "table", "--epochs", "1000000", "--deterministic", "--metrics",
                 folder_ / (name + ".jsonl"), "--sample-log", folder_ / (name + ".sample_log")});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Words saving(const std::string& name, Words more) const {
    more.insert(more.end(), {"--checkpoint-dir", folder_ / name, "--checkpoint-every", "1000000"});
    return command(name, more);
  }
  void complete(int world_size, const Words& words) {
    Ranks ranks(world_size, words);
    EXPECT_EQ(ranks.wait(), std::vector<int>(world_size, 0)) << ranks.errors();
  }
  // Without the run's id, which differs from run to run.
  std::string sample_log(const std::string& name) const {
    std::string text = folder_.read(name + ".sample_log");
    const auto begin = text.find(",\"run\":\"");
    return begin == std::string::npos ? "no run in " + text
                                      : text.erase(begin, text.find("}\n", begin) - begin);
  }
  bool has(const std::string& file) const {
    return fs::exists(folder_ / file) && fs::file_size(folder_ / file) > 0;
  }
  void wait_until_training(const std::string& name) {
    ASSERT_TRUE(eventually([&] { return has(name + ".jsonl"); }));
  }
  TemporaryFolder folder_;
};

TEST_F(Stop, ResumesBitForBit) {
  const struct {
    int world_size, signal;
    const char* name;
  } kCases[] = {{1, SIGTERM, "SIGTERM"},
                {2, SIGUSR1, "SIGUSR1"},
                {3, SIGUSR2, "SIGUSR2"},
                {4, SIGINT, "SIGINT"},
                {8, SIGHUP, "SIGHUP"}};
  for (const auto& c : kCases) {
    const std::string whole = "whole" + std::to_string(c.world_size),
                      parts = "parts" + std::to_string(c.world_size);
    Ranks ranks(c.world_size, saving(parts, {}));
    wait_until_training(parts);
    // The others get the request with the step's reduction.
    ranks.kill_rank(c.world_size - 1, c.signal);
    EXPECT_EQ(ranks.wait(), std::vector<int>(c.world_size, kRequeue)) << ranks.errors();
    const auto stopped_after = losses(folder_ / (parts + ".jsonl")).size();
    EXPECT_TRUE(contains(ranks.error(0), std::string("trainer: ") + c.name +
                                             ": stopped after step " +
                                             std::to_string(stopped_after) + " of"));
    EXPECT_EQ(lines_in(ranks.errors()), 1) << ranks.errors();

    const Words until = {"--max-steps", std::to_string(stopped_after + 8)};
    complete(c.world_size, saving(parts, until));
    complete(c.world_size, command(whole, until));
    EXPECT_EQ(losses(folder_ / (parts + ".jsonl")), losses(folder_ / (whole + ".jsonl")))
        << c.world_size << " ranks";
    EXPECT_EQ(sample_log(parts), sample_log(whole));
  }
}

// The state of the plateau schedule depends on each evaluation.
TEST_F(Stop, InTheMiddleOfAnEvaluationLetsTheNextStartRepeatIt) {
  const Words options = {"--model",       "mlp:2000,2000",
                         "--lr",          "1e-4",
                         "--lr-schedule", "plateau:patience=0,factor=0.5,threshold=0.5",
                         "--batch-size",  "1",
                         "--max-steps",   "3",
                         "--eval-every",  "1"};
  complete(2, command("whole", options));
  {
    Ranks ranks(2, saving("parts", options), {{"TORCHBRIDGE_FAIL", "evaluate:2:stop"}});
    for (std::size_t rank : {0, 1}) ASSERT_TRUE(eventually([&] { return ranks.stopped(rank); }));
    ranks.kill_rank(1, SIGTERM);
    for (std::size_t rank : {0, 1}) ranks.kill_rank(rank, SIGCONT);
    EXPECT_EQ(ranks.wait(), (std::vector<int>{kRequeue, kRequeue})) << ranks.errors();
    EXPECT_TRUE(contains(ranks.error(0), "stopped after step 1 of 3"));
    EXPECT_FALSE(contains(folder_.read("parts.jsonl"), "eval_loss"));
  }
  complete(2, saving("parts", options));
  std::ifstream whole(folder_ / "whole.jsonl"), parts(folder_ / "parts.jsonl");
  for (std::string expected, found; std::getline(whole, expected) && std::getline(parts, found);) {
    const auto e = nlohmann::json::parse(expected), f = nlohmann::json::parse(found);
    for (const char* key : {"step", "loss", "lr", "eval_loss"})
      EXPECT_EQ(e.at(key), f.at(key)) << key << " in " << found;
  }
  EXPECT_EQ(losses(folder_ / "parts.jsonl").size(), 3u);
}

TEST_F(Stop, WithoutCheckpointsPrintsThatNothingIsSaved) {
  Ranks ranks(2, command("lost", {}));
  wait_until_training("lost");
  ranks.kill_rank(0, SIGUSR1);
  EXPECT_EQ(ranks.wait(), std::vector<int>(2, 128 + SIGUSR1));
  EXPECT_TRUE(contains(ranks.errors(), "nothing is saved without --checkpoint-dir"));
  EXPECT_EQ(lines_in(ranks.errors()), 1) << ranks.errors();
}

TEST_F(Stop, IsPossibleBeforeTheProcessGroupIsFormed) {
  const int port = free_port();
  Ranks ranks({0}, 2, port, saving("alone", {}));
  ASSERT_TRUE(eventually([&] {
    return static_cast<bool>(torchbridge::connect_to({"127.0.0.1", port}, std::chrono::seconds(1)));
  }));
  ranks.kill_rank(0, SIGTERM);
  EXPECT_EQ(ranks.wait(std::chrono::seconds(5)), std::vector<int>{kRequeue});
  EXPECT_TRUE(
      contains(ranks.errors(), "trainer: SIGTERM: stopped before the process group was formed"));
}

// One rank gets the signal while rank 0 is late, and all stop in order.
TEST_F(Stop, ASignalBeforeTheRanksHaveJoinedStopsThemAll) {
  const int port = free_port();
  Ranks late({0}, 2, port, saving("early", {}), {{"TORCHBRIDGE_FAIL", "bind:1:stop"}});
  ASSERT_TRUE(eventually([&] { return late.stopped(0); }));
  Ranks signalled({1}, 2, port, saving("early", {}));
  ASSERT_TRUE(eventually([&] { return signalled.catches(0, SIGTERM); }));
  signalled.kill_rank(0, SIGTERM);
  late.kill_rank(0, SIGCONT);
  EXPECT_EQ(signalled.wait(std::chrono::seconds(20)), std::vector<int>{kRequeue})
      << signalled.errors();
  EXPECT_EQ(late.wait(std::chrono::seconds(20)), std::vector<int>{kRequeue}) << late.errors();
  EXPECT_TRUE(contains(late.errors(), "trainer: SIGTERM: stopped after step 0 of"))
      << late.errors();
}

// The group cannot be formed: the others learn that the rank is gone from its connection.
TEST_F(Stop, ARankThatASignalEndsWhileAnotherIsMissingEndsThemAll) {
  const int port = free_port();
  Ranks waiting({0}, 3, port, saving("gone", {}));
  Ranks signalled({1}, 3, port, saving("gone", {}), {{"TORCHBRIDGE_FAIL", "verdict:1:stop"}});
  ASSERT_TRUE(eventually([&] { return signalled.stopped(0); }));
  signalled.kill_rank(0, SIGTERM);
  signalled.kill_rank(0, SIGCONT);
  EXPECT_EQ(signalled.wait(std::chrono::seconds(10)), std::vector<int>{kRequeue})
      << signalled.errors();
  EXPECT_EQ(waiting.wait(std::chrono::seconds(10)), std::vector<int>{1}) << waiting.errors();
  EXPECT_TRUE(contains(waiting.errors(), "the connection to rank 1")) << waiting.errors();
}

TEST_F(Stop, SavesBeforeTheLimitOfTheJob) {
  const auto end = std::chrono::system_clock::now() + std::chrono::seconds(1000);
  const Variables job = {
      {"SLURM_JOB_END_TIME", std::to_string(std::chrono::system_clock::to_time_t(end))}};
  Ranks at_once(2, saving("limited", {"--stop-before-limit", "2000"}), job);
  EXPECT_EQ(at_once.wait(), std::vector<int>(2, kRequeue)) << at_once.errors();
  EXPECT_TRUE(contains(at_once.errors(), "trainer: the job ends in "));
  EXPECT_TRUE(contains(at_once.errors(), "stopped after step 0 of"));
  Ranks in_time(2, saving("limited", {"--stop-before-limit", "10", "--max-steps", "5"}), job);
  EXPECT_EQ(in_time.wait(), std::vector<int>(2, 0)) << in_time.errors();
}

// A peer that is stopped keeps the others in a collective.
TEST_F(Stop, ASecondInterruptOrTheEndOfTheGraceEndsAHangingRank) {
  for (const bool grace : {false, true}) {
    const std::string name = grace ? "grace" : "twice";
    Ranks ranks(2, saving(name, {"--heartbeat-timeout", "0", "--grace", grace ? "1" : "0"}));
    wait_until_training(name);
    ranks.kill_rank(1, SIGSTOP);
    ranks.kill_rank(0, SIGINT);
    ASSERT_TRUE(eventually(
        [&] {
          if (!grace)
            ranks.kill_rank(0, SIGINT);  // repeatedly: two signals at once may be delivered as one
          return ranks.ended(0);
        },
        std::chrono::seconds(10)));
    ranks.kill_rank(1, SIGKILL);
    EXPECT_EQ(ranks.wait(), (std::vector<int>{grace ? kRequeue : 128 + SIGINT, 128 + SIGKILL}));
    EXPECT_TRUE(!grace ||
                contains(ranks.error(0),
                         "the grace time after the signal ended before the run had stopped"));
  }
}

// Nobody has to send a heartbeat until then.
TEST_F(Stop, WithoutHeartbeatsASignalEndsRankZeroWhichNamesTheRankThatIsStopped) {
  const Variables kStops[] = {{}, {{"TORCHBRIDGE_FAIL", "write:2:stop"}}};  // in a step, in a save
  for (const Variables& stops : kStops) {
    const std::string name = stops.empty() ? "in a step" : "in a save";
    SCOPED_TRACE(name);
    const Words words = command(name, {"--heartbeat-timeout", "0", "--checkpoint-dir",
                                       folder_ / (name + " saved"), "--checkpoint-every", "5"});
    const int port = free_port();
    Ranks zero({0}, 2, port, words);
    Ranks one({1}, 2, port, words, stops);
    if (stops.empty()) {
      wait_until_training(name);
      one.kill_rank(0, SIGSTOP);
    }
    ASSERT_TRUE(eventually([&] { return one.stopped(0); }));
    zero.kill_rank(0, SIGTERM);
    EXPECT_EQ(zero.wait(std::chrono::seconds(20)), std::vector<int>{1});
    EXPECT_TRUE(contains(zero.errors(), "rank 1 on " + torchbridge::host_name() +
                                            " sent no heartbeat for 5 s: process stopped"))
        << zero.errors();
    EXPECT_EQ(lines_in(zero.errors()), 1) << zero.errors();
    one.kill_rank(0, SIGKILL);
    EXPECT_EQ(one.wait(), std::vector<int>{128 + SIGKILL});
  }
}

// With the same samples a step, and at each number of ranks.
TEST_F(Stop, ResumesAtAnotherWorldSizeInTheSameOrder) {
  const std::string data = folder_ / "data";
  fs::create_directory(data);
  std::string rows = "a,b,y\n";
  for (int i = 0; i < 240; ++i)
    rows += std::to_string(i % 16) + "," + std::to_string(i / 16) + "," +
            std::to_string(i * 7 % 240) + "\n";
  folder_.write("data/train.csv", rows);
  folder_.write("data/test.csv", rows);
  const auto train = [&](const std::string& name, int world_size, int steps, Words more) {
    more.insert(more.end(), {"--data", data, "--model", "mlp:8", "--max-steps"});
    more.push_back(std::to_string(steps));
    more.insert(more.end(), {"--batch-size", std::to_string(12 / world_size)});
    complete(world_size, name == "whole" ? command(name, more) : saving(name, more));
  };
  train("whole", 1, 60, {});
  for (const auto& [world_size, steps] : {std::pair(2, 7), {3, 17}, {1, 26}, {4, 60}})
    train("parts", world_size, steps, {});
  const auto expected = losses(folder_ / "whole.jsonl"), found = losses(folder_ / "parts.jsonl");
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], 1e-5 * expected[i]) << "step " << i + 1;

  Process check({in_source("scripts/check_sample_log"), folder_ / "parts.sample_log", "--samples",
                 "240", "--same-order-as", folder_ / "whole.sample_log"},
                {}, folder_ / "check");
  EXPECT_EQ(check.wait(std::chrono::seconds(20)), 0) << check.error();
  EXPECT_TRUE(contains(
      check.out(), "60 steps, 3 epochs of 240 samples, each sample once; ranks 2 -> 3 -> 1 -> 4"));
}

// check_sample_log finds each kind of fault.
TEST_F(Stop, CheckSampleLogRejectsFaults) {
  const std::string good = R"({"step":1,"epoch":0,"samples":[[0,2],[1,3]]})"
                           "\n"
                           R"({"step":2,"epoch":0,"samples":[[4],[0]]})"
                           "\n"
                           R"({"step":3,"epoch":1,"samples":[[4,3,2,1,0]]})"
                           "\n";
  const struct {
    const char *from, *to, *complaint;
  } kCases[] = {
      {"", "", ""},
      {"[4],[0]", "[4],[1]",
       "epoch 0: the 1 samples after the first 5 are not the padding for 2 ranks"},
      {"[4],[0]", "[4,0],[0,1]",
       "epoch 0: the 3 samples after the first 5 are not the padding for 2 ranks"},
      {"[4,3,2,1,0]", "[4,3,3,1,0]", "epoch 1: sample 3 was used twice"},
      {"[4,3,2,1,0]", "[4,3,1,0]", "epoch 1: 1 samples were not used, such as 2"},
      {"\"step\":2", "\"step\":3", "step 3 follows step 1"},
      {"\"epoch\":1", "\"epoch\":2", "step 3: epoch 2 follows epoch 0"},
      {"[[4],[0]]", "[[4],[]]", "step 2: the ranks used 1, 0 samples"},
      {"{\"step\":3", "\"step\":3", "line 3 is not a line of a sample log"},
  };
  for (const auto& c : kCases) {
    std::string text = good;
    if (*c.from) text.replace(text.find(c.from), std::string_view(c.from).size(), c.to);
    folder_.write("sample_log", text);
    Process check({in_source("scripts/check_sample_log"), folder_ / "sample_log"}, {},
                  folder_ / ("check" + std::to_string(&c - kCases)));
    EXPECT_EQ(check.wait(std::chrono::seconds(20)), *c.from ? 1 : 0) << text;
    EXPECT_TRUE(!*c.from || contains(check.error(), c.complaint));
  }
}

}  // namespace
