// ZeRO stage 1 trains as the whole optimizer does, and its checkpoints fit any number of ranks.
#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/support/ranks.h"

namespace {

namespace fs = std::filesystem;

class Zero : public testing::Test {
 protected:
  // Widths that no number of ranks divides: ranks' parts begin and end within parameters.
  Words command(const std::string& metrics, const Words& more) {
    Words words =
        trainer({"--model", "mlp:37,29", "--optimizer", "adamw", "--lr", "0.01", "--weight-decay",
                 "0.1", "--no-decay-1d", "--metrics", folder_ / metrics});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::vector<double> train(int world_size, const std::string& metrics, const Words& more) {
    Ranks ranks(world_size, command(metrics, more));
    EXPECT_EQ(ranks.wait(), std::vector<int>(world_size, 0)) << ranks.errors();
    return losses(folder_ / metrics);
  }
  // Saves after six steps, below the folder.
  std::vector<double> train_and_save(int world_size, const std::string& name,
                                     const std::string& zero) {
    return train(world_size, name + ".jsonl",
                 {"--max-steps", "6", "--zero", zero, "--checkpoint-dir", folder_ / name});
  }
  // From there to step 12 of three ranks, in nine steps of two ranks, in a copy of the run.
  std::vector<double> go_on(const std::string& name, const std::string& zero) {
    const std::string copy = name + "-to-" + zero, curve = copy + ".jsonl";
    fs::copy_file(folder_ / (name + ".jsonl"), folder_ / curve);
    fs::copy(folder_ / name, folder_ / copy,
             fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    return train(2, curve,
                 {"--max-steps", "12", "--zero", zero, "--checkpoint-dir", folder_ / copy});
  }
  TemporaryFolder folder_;
};

// Curves of fifteen steps with different ways of ZeRO.
class SameCurves : public Zero {
 protected:
  std::vector<double> run(const std::string& name, Words options, const Words& zero) {
    options.insert(options.end(), zero.begin(), zero.end());
    options.insert(options.end(), {"--max-steps", "15"});
    return train(world_size_, name + std::to_string(world_size_), options);
  }
  int world_size_ = 2;
};

const Words kAllReduce = {"--zero", "1"};  // on gloo
const Words kReduceScatter = {"--zero", "1", "--zero-gradients", "reduce-scatter"};

TEST_F(SameCurves, AreGivenByClippingAtAnyNumberOfRanks) {
  const Words options = {"--clip-norm", "0.5"};
  for (world_size_ = 2; world_size_ <= 3; ++world_size_) {
    const std::vector<double> whole = run("whole", options, {});
    EXPECT_EQ(whole.size(), 15u);
    EXPECT_EQ(run("all-reduce", options, kAllReduce), whole) << world_size_ << " ranks";
    // The norm is summed in another order, and so may be the gradients of three ranks.
    const std::vector<double> scattered = run("reduce-scatter", options, kReduceScatter);
    ASSERT_EQ(scattered.size(), whole.size());
    for (std::size_t i = 0; i < whole.size(); ++i) {
      EXPECT_NEAR(scattered[i], whole[i], 1e-5)
          << "step " << i + 1 << " of " << world_size_ << " ranks";
    }
  }
}

// A sum of two does not depend on its order. That DDP communicates in backward is in the metrics.
TEST_F(SameCurves, AreThoseOfTwoRanksBitForBit) {
  const Words options = {"--grad-accumulation", "2", "--no-grad-norm"};
  const std::vector<double> whole = run("whole", options, {});
  EXPECT_EQ(whole.size(), 15u);
  EXPECT_EQ(run("reduce-scatter", options, kReduceScatter), whole);
  EXPECT_TRUE(contains(folder_.read("reduce-scatter2"), "\"comm_fraction\":"));
}

// Reduce-scatter leaves infinity on the rank whose part it is in; a rank that stepped alone would
// have other losses.
TEST_F(SameCurves, AreGivenWhereOneRankSeesOverflows) {
  const Words options = {"--precision", "fp16", "--loss-scale", "67108864"};
  const std::vector<double> whole = run("whole", options, {"--checkpoint-dir", folder_ / "whole"});
  EXPECT_EQ(whole.size(), 15u);
  const auto manifest = nlohmann::json::parse(folder_.read("whole/step-00000015/manifest.json"));
  EXPECT_LT(manifest.at("state").at("grad_scaler.scale"), 67108864) << "nothing has overflowed";
  EXPECT_EQ(run("reduce-scatter", options, kReduceScatter), whole);
}

TEST_F(Zero, ResumesAtAnotherNumberOfRanksAndWithoutZero) {
  const std::vector<double> saved = train_and_save(3, "zero", "1");
  EXPECT_EQ(train_and_save(3, "whole", "0"), saved);
  EXPECT_TRUE(fs::exists(folder_ / "zero/step-00000006/optimizer-00002-of-00003.safetensors"));
  EXPECT_TRUE(fs::exists(folder_ / "whole/step-00000006/optimizer-00000-of-00001.safetensors"));
  const std::vector<double> expected = go_on("whole", "0");
  EXPECT_EQ(expected.size(), 15u);
  EXPECT_EQ(go_on("zero", "0"), expected);
  EXPECT_EQ(go_on("zero", "1"), expected);
  EXPECT_EQ(go_on("whole", "1"), expected);
}

TEST_F(Zero, PiecesOfStateAreTheWholeOne) {
  if (python().empty()) GTEST_SKIP() << "no .venv with torch: run scripts/setup";
  train_and_save(3, "zero", "1");
  train_and_save(3, "whole", "0");
  Process compare({python(), "-c", R"(
import sys
import torch
from safetensors.torch import load_file
step = "/step-00000006/optimizer-"
whole = load_file(sys.argv[1] + step + "00000-of-00001.safetensors")
pieces = [load_file(f"{sys.argv[2]}{step}{rank:05}-of-00003.safetensors") for rank in range(3)]
for name, tensor in whole.items():
    parts = [piece[name] for piece in pieces if name in piece]
    together = parts[0] if tensor.dim() == 0 else torch.cat(parts).reshape(tensor.shape)
    assert torch.equal(together, tensor), name
sizes = [sum(t.numel() for name, t in piece.items() if name.endswith("exp_avg")) for piece in pieces]
print(len(whole), "tensors;", sizes)
assert max(sizes) <= sum(sizes) / 3 + 64
)",
                   folder_ / "whole", folder_ / "zero"},
                  {}, folder_ / "compare");
  EXPECT_EQ(compare.wait(std::chrono::seconds(60)), 0) << compare.error();
  EXPECT_TRUE(contains(compare.out(), "18 tensors;")) << compare.out();
}

}  // namespace
