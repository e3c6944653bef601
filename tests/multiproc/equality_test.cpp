// Our ranks against Python's: the same indices, the same losses bit for bit.
#include "ranks.h"

namespace {

const std::vector<int> kTwoGood = {0, 0};

std::string run(const Words& command) {
  TemporaryFolder folder;
  Process process(command, {}, folder / "process");
  EXPECT_EQ(process.wait(std::chrono::steady_clock::now() + std::chrono::seconds(60)), 0) << process.error();
  return process.out();
}

TEST(Equality, SamplerGivesPythonsIndices) {
  if (python().empty()) GTEST_SKIP() << "no .venv with torch: run scripts/setup";
  const std::string cases = SOURCE_DIR "/tests/reference/sampler_cases.txt";
  const std::string expected = run({python(), SOURCE_DIR "/tests/reference/sampler_reference.py", cases});
  const std::string ours = run({"/bin/sh", "-c", std::string("exec " SAMPLER_PROGRAM " < ") + cases});
  EXPECT_GT(lines_in(expected), 40);
  EXPECT_EQ(ours, expected);
}

struct Case {
  const char* name;
  int world_size;
  Words options;
};

const Case kCases[] = {
    {"one rank", 1, {"--optimizer", "sgd", "--lr", "0.1", "--momentum", "0.9"}},
    {"sgd", 2, {"--optimizer", "sgd", "--lr", "0.1", "--momentum", "0"}},
    {"sgd with momentum and weight decay", 2, {"--optimizer", "sgd", "--lr", "0.05", "--momentum", "0.9",
                                               "--weight-decay", "0.001"}},
    {"adamw", 2, {"--optimizer", "adamw", "--lr", "0.003", "--weight-decay", "0.01"}},
    {"uneven batches on three ranks", 3, {"--optimizer", "adamw", "--lr", "0.001", "--batch-size", "50"}},
    {"a convolutional network", 2, {"--model", "cnn:8,16", "--optimizer", "sgd", "--lr", "0.05", "--momentum", "0.9"}},
};

Words joined(Words command, const Words& more) {
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

TEST(Equality, LossesArePythonsBitForBit) {
  if (python().empty()) GTEST_SKIP() << "no .venv with torch: run scripts/setup";
  TemporaryFolder folder;
  const std::string init = folder / "init.safetensors";
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const Words shared = joined({"--epochs", "2", "--seed", "11", "--data", SOURCE_DIR "/data/digits"}, c.options);
    Ranks reference(c.world_size,
                    joined({python(), SOURCE_DIR "/tests/reference/train_reference.py", "--save-init", init, "--metrics",
                            folder / "python.jsonl"}, shared));
    ASSERT_EQ(reference.wait(), std::vector<int>(c.world_size, 0)) << reference.errors();
    // Another seed of the weights shows that they come from the file.
    Ranks ours(c.world_size,
               joined(trainer({"--init-from", init, "--metrics", folder / "ours.jsonl"}), shared));
    ASSERT_EQ(ours.wait(), std::vector<int>(c.world_size, 0)) << ours.errors();
    const std::vector<double> expected = losses(folder / "python.jsonl");
    EXPECT_GT(expected.size(), 10u);
    EXPECT_EQ(losses(folder / "ours.jsonl"), expected);
  }
}

TEST(Equality, PythonReadsOurCheckpoints) {
  if (python().empty()) GTEST_SKIP() << "no .venv with torch: run scripts/setup";
  TemporaryFolder folder;
  Ranks ranks(2, trainer({"--max-steps", "3", "--optimizer", "adamw", "--checkpoint-dir", folder / "runs"}));
  ASSERT_EQ(ranks.wait(), kTwoGood) << ranks.errors();
  const std::string out = run({python(), "-c", R"(
import sys
from safetensors.torch import load_file
for name in ("model", "optimizer-00000-of-00001", "rank-00000", "rank-00001"):
    for key, value in sorted(load_file(f"{sys.argv[1]}/{name}.safetensors").items()):
        print(name, key, list(value.shape), value.dtype)
)", folder / "runs/step-00000003"});
  EXPECT_TRUE(contains(out, "model layers.0.weight [128, 64] torch.float32\n"));
  EXPECT_TRUE(contains(out, "optimizer-00000-of-00001 layers.4.bias.exp_avg_sq [10] torch.float32\n"));
  EXPECT_TRUE(contains(out, "rank-00001 cpu_generator [5056] torch.uint8\n"));
}

}  // namespace
