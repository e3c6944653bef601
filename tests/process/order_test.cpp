// The order of samples, as the trainer takes it by --order, and as Python's DistributedSampler
// gives it.
#include "tests/support/paths.h"
#include "tests/support/ranks.h"

namespace {

const Words kOrders = {"shuffled", "permuted", "sequential"};

class Order : public testing::Test {
 protected:
  // Trains on `world_size` ranks with `more` options; the losses of all steps so far.
  std::vector<double> train(int world_size, const std::string& name, const Words& more) {
    Words options = {"--epochs", "2",         "--batch-size",
                     "64",       "--metrics", (folder_ / (name + ".jsonl")).string()};
    options.insert(options.end(), more.begin(), more.end());
    Ranks ranks(world_size, trainer(options));
    EXPECT_EQ(ranks.wait(), std::vector<int>(world_size, 0)) << ranks.errors();
    return losses(folder_ / (name + ".jsonl"));
  }
  TemporaryFolder folder_;
};

TEST_F(Order, EachGivesAnotherCurve) {
  std::map<std::string, std::vector<double>> curves;
  for (const std::string& order : kOrders) curves[order] = train(1, order, {"--order", order});
  EXPECT_EQ(curves["shuffled"], train(1, "default", {}));
  EXPECT_NE(curves["shuffled"], curves["permuted"]);
  EXPECT_NE(curves["permuted"], curves["sequential"]);
}

TEST_F(Order, PermutedResumesInMidEpoch) {
  const Words permuted = {"--order", "permuted"};
  const auto whole = train(2, "whole", permuted);
  const Words parts = {"--order", "permuted", "--checkpoint-dir", folder_ / "runs"};
  for (const std::string steps : {"3", "14"}) {
    Words options = parts;
    options.insert(options.end(), {"--max-steps", steps});
    train(2, "parts", options);
  }
  EXPECT_EQ(train(2, "parts", parts), whole);
}

TEST_F(Order, AnotherOrderInMidEpochIsRejected) {
  train(1, "curve", {"--checkpoint-dir", folder_ / "runs", "--max-steps", "3"});
  Ranks again(2, trainer({"--batch-size", "64", "--checkpoint-dir", folder_ / "runs", "--order",
                          "permuted"}));
  for (const int code : again.wait()) EXPECT_EQ(code, 1);
  EXPECT_TRUE(contains(
      again.errors(),
      "step 3 was written in an epoch with --order shuffled, this run has --order permuted"));
  EXPECT_EQ(lines_in(again.errors()), 1) << again.errors();
}

// All small shapes: data sets smaller than the world, padded once and several times, cut, with and
// without shuffling.
TEST_F(Order, SmallDataSetsGivePythonsIndices) {
  if (python().empty()) GTEST_SKIP() << "no .venv with torch: run scripts/setup";
  std::string cases;
  for (int size = 1; size <= 12; ++size) {
    for (int world_size = 1; world_size <= 9; ++world_size) {
      for (const std::string flags : {"0 0", "0 1", "1 0", "1 1"}) {
        cases += std::to_string(size) + " " + std::to_string(world_size) + " * 3 5 " + flags + "\n";
      }
    }
  }
  folder_.write("cases.txt", cases);
  const auto run = [&](const Words& command, const std::string& name) {
    Process process(command, {}, folder_ / name);
    EXPECT_EQ(process.wait(std::chrono::seconds(60)), 0) << process.error();
    return process.out();
  };
  const std::string path = folder_ / "cases.txt";
  const std::string expected =
      run({python(), in_source("tests/reference/sampler_reference.py"), path}, "python");
  EXPECT_EQ(lines_in(expected), 12 * 4 * 45);
  EXPECT_EQ(run({"/bin/sh", "-c", "exec " + in_build("bin/print_sampler") + " < " + path}, "ours"),
            expected);
}

}  // namespace
