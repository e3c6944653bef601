#include <torchbridge/train/run/metrics.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "temporary_folder.h"

namespace torchbridge::train {
namespace {

TEST(Metrics, NumbersReadBackBitForBit) {
  for (double value : {0.1, 1.0 / 3.0, static_cast<double>(0.1f), 1e-300, 12345678.9, 5e-324}) {
    const auto line = nlohmann::json::parse(
        to_json_line({.step = 7, .epoch = 2, .loss = value, .learning_rate = value, .samples_per_s = 1}));
    EXPECT_EQ(line["loss"].get<double>(), value);
    EXPECT_EQ(line["lr"].get<double>(), value);
    EXPECT_EQ(line["step"], 7);
    EXPECT_EQ(line["epoch"], 2);
    EXPECT_FALSE(line.contains("eval_loss"));
  }
}

TEST(Metrics, WritesNumbersThatAreNoneAsPythonDoes) {
  EXPECT_TRUE(contains(to_json_line({.loss = std::nan("")}), "\"loss\":NaN,"));
  EXPECT_TRUE(contains(to_json_line({.loss = -std::numeric_limits<double>::infinity()}), "\"loss\":-Infinity,"));
}

TEST(Metrics, WritesAnEvaluationWhereThereIsOne) {
  const auto line = nlohmann::json::parse(to_json_line({.evaluation = Evaluation{.loss = 0.25, .metrics = {{"accuracy", 0.5}}}}));
  EXPECT_EQ(line["eval_loss"], 0.25);
  EXPECT_EQ(line["eval_accuracy"], 0.5);
}

TEST(Metrics, KeepsEachStepOnce) {
  const std::string one = to_json_line({.step = 1}) + "\n", two = to_json_line({.step = 2}) + "\n";
  const struct {
    std::string text;
    std::int64_t last_step;
    std::string expected;
  } kCases[] = {
      {one + two, 0, ""},
      {one + two, 1, one},
      {one + two, 5, one + two},
      {one + "{\"step\":2,\"epo", 5, one},           // cut off by a kill
      {one + "{\"step\":2,\"epo\n" + two, 5, one + two},
      {"not ours\n" + one, 5, one},
      {"", 5, ""},
  };
  for (const auto& c : kCases) EXPECT_EQ(lines_until(c.text, c.last_step), c.expected) << c.text;
}

TEST(Metrics, GoesOnWithTheFileOfTheRunBefore) {
  TemporaryFolder folder;
  const auto path = folder / "sub/curve.jsonl";
  {
    MetricsFile file(path, 0);
    for (std::int64_t step : {1, 2, 3}) file.write({.step = step});
  }
  MetricsFile(path, 2).write({.step = 3, .epoch = 9});
  const std::string text = folder.read("sub/curve.jsonl");
  EXPECT_EQ(text, to_json_line({.step = 1}) + "\n" + to_json_line({.step = 2}) + "\n" +
                      to_json_line({.step = 3, .epoch = 9}) + "\n");
}

TEST(Metrics, LeavesALinkAsItIs) {
  TemporaryFolder folder;
  folder.write("real.jsonl", "");
  std::filesystem::create_symlink("real.jsonl", folder / "link.jsonl");
  MetricsFile(folder / "link.jsonl", 0).write({.step = 1});
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link.jsonl"));
  EXPECT_EQ(folder.read("real.jsonl"), to_json_line({.step = 1}) + "\n");
}

TEST(Metrics, NamesAFileThatCannotBeWritten) {
  EXPECT_TRUE(contains(error_of([] { MetricsFile("/proc/none/curve.jsonl", 0); }), "/proc/none/curve.jsonl"));
}

}  // namespace
}  // namespace torchbridge::train
