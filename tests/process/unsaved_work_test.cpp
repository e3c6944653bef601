// What fails after a step takes no step away: the state is saved first, and the same command
// repeats what failed.
#include <cstdint>
#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/support/ranks.h"

namespace {

const std::vector<int> kGood = {0, 0}, kFailed = {1, 1};
constexpr int kWindow = 16, kWindows = 40;

class UnsavedWork : public testing::Test {
 protected:
  UnsavedWork() {
    write_tokens("train.bin", -1);
    write_tokens("val.bin", -1);
  }

  // One of the windows has a token beyond the vocabulary.
  void write_tokens(const char* name, int bad_window) {
    std::string tokens;
    for (int i = 0; i <= kWindow * kWindows; ++i)
      tokens += i == bad_window * kWindow + 1 ? "\xff\xff" : std::string("\1\0", 2);
    folder_.write(name, tokens);
  }

  Words command(const Words& more) const {
    Words words = trainer({"--task", "text", "--model", "gpt:layers=1,heads=2,width=32,context=16",
                           "--batch-size", "2", "--data", folder_.path(), "--epochs", "1",
                           "--metrics", folder_ / "curve", "--checkpoint-dir", folder_ / "runs"});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  nlohmann::json last_step() const {
    std::string lines = folder_.read("curve");
    lines.pop_back();
    return nlohmann::json::parse(lines.substr(lines.rfind('\n') + 1));
  }

  // The same command ends with all steps and the evaluation, and makes no step again.
  void expect_only_the_evaluation(Words words, std::size_t steps) {
    std::erase(words, "--quiet");
    Ranks again(2, words);
    ASSERT_EQ(again.wait(), kGood) << again.errors();
    const std::string resumes =
        "resumes from step " + std::to_string(steps) + " of " + std::to_string(steps);
    EXPECT_TRUE(contains(again.out(0), resumes)) << again.out(0);
    EXPECT_EQ(losses(folder_ / "curve").size(), steps);
    EXPECT_EQ(last_step().at("step"), steps);
    EXPECT_TRUE(last_step().contains("eval_loss")) << last_step();
  }

  TemporaryFolder folder_;
};

TEST_F(UnsavedWork, IsNotLostByAnErrorInAnEvaluation) {
  write_tokens("val.bin", 20);  // behind the batch that is tried before the first step
  const Words words = command({"--max-steps", "4"});
  Ranks ranks(2, words);
  EXPECT_EQ(ranks.wait(), kFailed);
  EXPECT_TRUE(contains(ranks.errors(), "the state after step 4 is saved")) << ranks.errors();
  EXPECT_TRUE(contains(ranks.errors(), "val.bin: byte 642: token 65535")) << ranks.errors();
  write_tokens("val.bin", -1);
  expect_only_the_evaluation(words, 4);
}

TEST_F(UnsavedWork, IsNotLostByAKillInAnEvaluation) {
  const Words words = command({"--max-steps", "4"});
  Ranks ranks(2, words, {{"TORCHBRIDGE_FAIL", "evaluate:3"}});  // the first is the trial
  for (const int code : ranks.wait()) EXPECT_NE(code, 0);
  expect_only_the_evaluation(words, 4);
  EXPECT_GT(last_step().at("loss"), 0);
}

// The save of step 3 is held: that of step 4 is neither left out nor in the background.
TEST_F(UnsavedWork, IsNotLostByAKillInAnEvaluationWithBackgroundSaves) {
  const Words words = command({"--max-steps", "4", "--checkpoint-every", "3", "--async-save",
                               "--on-pending-save", "skip", "--save-mb-per-s", "0.001"});
  Ranks ranks(2, words, {{"TORCHBRIDGE_FAIL", "evaluate:3"}});
  for (const int code : ranks.wait()) EXPECT_NE(code, 0);
  expect_only_the_evaluation(words, 4);
}

// The save of step 1 is held, and ends before the run does.
TEST_F(UnsavedWork, InASaveThatRunsIsNotLostByALossOrAWeightThatIsNotFinite) {
  const std::vector<std::pair<Words, const char*>> ends = {
      {{"--lr", "1e38"}, "step 2: the loss is "},
      {{"--lr", "1e38", "--on-nan", "skip", "--max-skips", "3"}, "step 4: the last 3 steps were"},
      {{"--lr-schedule", "multi-step:milestones=1,gamma=1e42"}, "a weight is infinite or NaN"}};
  for (const auto& [end, line] : ends) {
    std::filesystem::remove_all(folder_ / "runs");
    Words words = trainer({"--model", "mlp:8", "--max-steps", "9", "--checkpoint-every", "1",
                           "--async-save", "--on-pending-save", "skip", "--save-mb-per-s", "0.001",
                           "--checkpoint-dir", folder_ / "runs"});
    words.insert(words.end(), end.begin(), end.end());
    Ranks ranks(2, words);
    EXPECT_EQ(ranks.wait(), kFailed) << ranks.errors();
    EXPECT_TRUE(contains(ranks.errors(), line)) << ranks.errors();
    EXPECT_TRUE(std::filesystem::exists(folder_ / "runs/step-00000001/DONE")) << ranks.errors();
  }
}

// Its gradients overflow, and its weights are those of step 1.
TEST_F(UnsavedWork, IsNotLostByAKillAfterAStepThatTheLossScaleSkips) {
  const Words words =
      trainer({"--model", "mlp:8", "--precision", "fp16", "--lr", "50", "--max-steps", "2",
               "--metrics", folder_ / "curve", "--checkpoint-dir", folder_ / "runs"});
  Ranks whole(2, words);
  ASSERT_EQ(whole.wait(), kGood) << whole.errors();
  ASSERT_TRUE(last_step().at("skipped"));
  for (const char* each : {"runs", "curve"}) std::filesystem::remove_all(folder_ / each);
  Ranks ranks(2, words, {{"TORCHBRIDGE_FAIL", "evaluate:2"}});
  for (const int code : ranks.wait()) EXPECT_NE(code, 0);
  expect_only_the_evaluation(words, 2);
}

TEST_F(UnsavedWork, IsNotLostByABadSample) {
  Ranks good(2, command({"--sample-log", folder_ / "samples"}));
  ASSERT_EQ(good.wait(), kGood) << good.errors();
  const std::string samples = folder_.read("samples");
  const auto line = samples.find("{\"step\":5,");
  const auto step = nlohmann::json::parse(samples.substr(line, samples.find('\n', line) - line));
  std::filesystem::remove_all(folder_ / "runs");
  write_tokens("train.bin", step.at("samples").at(1).at(0));  // on rank 1
  Ranks without(2, command({"--max-steps", "4"}));
  EXPECT_EQ(without.wait(), kGood) << "no step needs it: " << without.errors();
  std::filesystem::remove_all(folder_ / "runs");
  Ranks ranks(2, command({}));
  EXPECT_EQ(ranks.wait(), kFailed);
  EXPECT_TRUE(contains(ranks.errors(), "stopped after step 4 of 10; the same command resumes"))
      << ranks.errors();
  EXPECT_TRUE(contains(ranks.errors(), "train.bin: byte ")) << ranks.errors();
  Words skipping = command({"--skip-unreadable"});
  std::erase(skipping, "--quiet");
  Ranks again(2, skipping);
  ASSERT_EQ(again.wait(), kGood) << again.errors();
  EXPECT_TRUE(contains(again.out(0), "resumes from step 4 of 10")) << again.out(0);
}

// Batch normalisation rejects one value a channel: 1437 digits are four batches of 359 and one.
TEST_F(UnsavedWork, IsNotLostByABatchThatTheModelRejects) {
  for (const int size : {1, 2}) {
    const std::string runs = folder_ / std::to_string(size);
    const int steps = 4 / size;
    Words words = trainer({"--model", "cnn:4,8,8,8", "--batch-size", "359", "--epochs", "2",
                           "--checkpoint-dir", runs});
    Ranks ranks(size, words);
    EXPECT_EQ(ranks.wait(), std::vector<int>(static_cast<std::size_t>(size), 1));
    const std::string errors = ranks.errors();
    EXPECT_TRUE(contains(errors, "the state after step " + std::to_string(steps) + " is saved"))
        << errors;
    EXPECT_TRUE(contains(
        errors, "step " + std::to_string(steps + 1) + ": the model rejects a batch of 1 sample: "))
        << errors;
    std::erase(words, "--quiet");
    words.push_back("--drop-last");
    Ranks again(size, words);
    EXPECT_EQ(again.wait(), std::vector<int>(static_cast<std::size_t>(size), 0)) << again.errors();
    EXPECT_TRUE(contains(again.out(0), "resumes from step " + std::to_string(steps) + " of " +
                                           std::to_string(2 * steps)))
        << again.out(0);
  }
}

// The state is that of a run that stops before the step. One rank alone, or weights that an
// optimizer has changed, save nothing: the others are in the step's collectives, and the state is
// of no step.
TEST_F(UnsavedWork, IsSavedBeforeARejectedBatchWhereAllRanksRejectIt) {
  const auto words = [&](const std::string& runs, const char* steps) {
    return Words{in_build("bin/rejecting_trainer"),
                 "--quiet",
                 "--data",
                 in_source("data/digits"),
                 "--optimizer",
                 "adamw",
                 "--checkpoint-dir",
                 folder_ / runs,
                 "--max-steps",
                 steps};
  };
  Ranks whole(2, words("whole", "2"), {{"REJECTS", "nobody"}});
  ASSERT_EQ(whole.wait(), kGood) << whole.errors();
  for (const auto& [rejects, is_saved] :
       {std::pair("all", true), {"rank 0", false}, {"after a step of an optimizer", false}}) {
    SCOPED_TRACE(rejects);
    Ranks ranks(2, words(rejects, "9"), {{"REJECTS", rejects}});
    EXPECT_EQ(ranks.wait(), kFailed);
    EXPECT_TRUE(contains(ranks.errors(), "out of bounds")) << ranks.errors();
    EXPECT_EQ(contains(ranks.errors(), "the state after step 2 is saved"), is_saved)
        << ranks.errors();
    EXPECT_EQ(std::filesystem::exists(folder_ / rejects / "step-00000002/DONE"), is_saved);
  }
  for (const char* file : {"model", "optimizer-00000-of-00001", "rank-00000", "rank-00001"}) {
    const auto text = [&](const char* runs) {
      return folder_.read(std::string(runs) + "/step-00000002/" + file + ".safetensors");
    };
    EXPECT_EQ(text("all"), text("whole")) << file;
  }
}

// A loss of the evaluation that is not finite does not make the weights bad.
TEST_F(UnsavedWork, IsNotLostByAnEvaluationThatIsNotFinite) {
  std::string rows = "a,b\n";
  for (int i = 0; i < 64; ++i) rows += std::to_string(i % 8) + "," + std::to_string(i % 3) + "\n";
  folder_.write("train.csv", rows);
  folder_.write("test.csv", rows + "1,1e300\n");
  const Words words =
      trainer({"--task", "table", "--data", folder_.path(), "--max-steps", "4", "--metrics",
               folder_ / "curve", "--checkpoint-dir", folder_ / "runs"});
  for (int start = 0; start < 2; ++start) {
    Ranks ranks(2, words);
    EXPECT_EQ(ranks.wait(), kFailed);
    EXPECT_TRUE(contains(ranks.errors(),
                         "the evaluation loss after step 4 is infinite, first at sample 64 of the "
                         "evaluation set, while all weights are finite"))
        << ranks.errors();
  }
  folder_.write("test.csv", rows);
  expect_only_the_evaluation(words, 4);
}

TEST_F(UnsavedWork, AnEvaluationIsTriedBeforeTheFirstStep) {
  write_tokens("val.bin", 0);
  Ranks ranks(2, command({"--max-steps", "4"}));
  expect_one_line(ranks, "val.bin: byte 2: token 65535");
  EXPECT_EQ(folder_.read("curve"), "");
}

}  // namespace
