#include "trainer_template/runtime/output/metrics.h"

#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"

namespace torchbridge::train {
namespace {

TEST(Metrics, NumbersReadBackBitForBit) {
  for (double value : {0.1, 1.0 / 3.0, static_cast<double>(0.1f), 1e-300, 12345678.9, 5e-324}) {
    const auto line = nlohmann::json::parse(to_json_line(
        {.step = 7, .epoch = 2, .loss = value, .learning_rate = value, .samples_per_s = 1}));
    EXPECT_EQ(line["loss"].get<double>(), value);
    EXPECT_EQ(line["lr"].get<double>(), value);
    EXPECT_EQ(line["step"], 7);
    EXPECT_EQ(line["epoch"], 2);
    EXPECT_FALSE(line.contains("eval_loss"));
  }
}

TEST(Metrics, WritesNanAndInfinityAsPythonDoes) {
  EXPECT_TRUE(contains(to_json_line({.loss = std::nan("")}), "\"loss\":NaN,"));
  EXPECT_TRUE(contains(to_json_line({.loss = -std::numeric_limits<double>::infinity()}),
                       "\"loss\":-Infinity,"));
}

TEST(Metrics, WritesAnEvaluationWhereThereIsOne) {
  const auto line = nlohmann::json::parse(
      to_json_line({.evaluation = Evaluation{.loss = 0.25, .metrics = {{"accuracy", 0.5}}}}));
  EXPECT_EQ(line["eval_loss"], 0.25);
  EXPECT_EQ(line["eval_accuracy"], 0.5);
}

TEST(Metrics, ContinuesTheFileOfTheEarlierStart) {
  TemporaryFolder folder;
  const auto path = folder / "sub/curve.jsonl";
  {
    MetricsFile file(path, {});
    for (std::int64_t step : {1, 2, 3}) file.write({.step = step});
  }
  MetricsFile(path, {.step = 2}).write({.step = 3, .epoch = 9});
  const std::string text = folder.read("sub/curve.jsonl");
  EXPECT_EQ(text, to_json_line({.step = 1}) + "\n" + to_json_line({.step = 2}) + "\n" +
                      to_json_line({.step = 3, .epoch = 9}) + "\n");
}

// The run before was stopped in the middle of the evaluation.
TEST(Metrics, AddsAnEvaluationToTheLastStepOfTheEarlierStart) {
  TemporaryFolder folder;
  const auto path = folder / "curve.jsonl";
  const Evaluation evaluation{.loss = 0.5, .metrics = {{"accuracy", 0.75}}};
  for (std::int64_t step : {1, 2, 3}) MetricsFile(path, {.step = step - 1}).write({.step = step});
  MetricsFile(path, {.step = 2}).add(evaluation);
  const std::string expected =
      to_json_line({.step = 1}) + "\n" + to_json_line({.step = 2, .evaluation = evaluation}) + "\n";
  EXPECT_EQ(folder.read("curve.jsonl"), expected);
  {
    MetricsFile again(path, {.step = 2});  // from the same checkpoint
    again.add(evaluation);
    again.write({.step = 3});
  }
  EXPECT_EQ(folder.read("curve.jsonl"), expected + to_json_line({.step = 3}) + "\n");
  MetricsFile(path, {.step = 4}).add(evaluation);  // its line is not there
  EXPECT_EQ(folder.read("curve.jsonl"), expected + to_json_line({.step = 3}) + "\n");
}

TEST(Metrics, DoesNotReplaceALink) {
  TemporaryFolder folder;
  folder.write("real.jsonl", "");
  std::filesystem::create_symlink("real.jsonl", folder / "link.jsonl");
  MetricsFile(folder / "link.jsonl", {}).write({.step = 1});
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link.jsonl"));
  EXPECT_EQ(folder.read("real.jsonl"), to_json_line({.step = 1}) + "\n");
}

TEST(Metrics, NamesAFileThatCannotBeWritten) {
  EXPECT_TRUE(contains(error_of([] { MetricsFile("/proc/none/curve.jsonl", {}); }),
                       "/proc/none/curve.jsonl"));
}

TEST(Metrics, HaveTheNumbersThatAProgramLogs) {
  const auto line =
      nlohmann::json::parse(to_json_line({.step = 1, .logged = {{"aux", 0.5}, {"hits", 3}}}));
  EXPECT_EQ(line.at("aux"), 0.5);
  EXPECT_EQ(line.at("hits"), 3);
}

}  // namespace
}  // namespace torchbridge::train
