// Our ranks against Python's: the same indices, the same losses bit for bit.
#include <algorithm>
#include <cstdlib>

#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/support/ranks.h"

namespace {

const std::vector<int> kTwoGood = {0, 0};

std::string run(const Words& command) {
  TemporaryFolder folder;
  Process process(command, {}, folder / "process");
  EXPECT_EQ(process.wait(std::chrono::seconds(60)), 0) << process.error();
  return process.out();
}

// What a program prints for the cases of a file, and what the reference script prints for them.
void expect_same_output(const std::string& program, const std::string& cases,
                        const std::string& script, int least_lines) {
  const std::string folder = in_source("tests/reference/");
  const std::string expected = run({python(), folder + script, folder + cases});
  const std::string ours = run({"/bin/sh", "-c", "exec " + program + " < " + folder + cases});
  EXPECT_GE(lines_in(expected), least_lines);
  EXPECT_EQ(ours, expected);
}

TEST(Equality, SamplerGivesPythonsIndices) {
  if (python().empty()) GTEST_SKIP() << "no .venv with torch: run scripts/setup";
  expect_same_output(in_build("bin/print_sampler"), "sampler_cases.txt", "sampler_reference.py",
                     41);
}

TEST(Equality, LearningRatesArePythons) {
  if (python().empty()) GTEST_SKIP() << "no .venv with torch: run scripts/setup";
  expect_same_output(in_build("bin/print_lr_schedule"), "lr_schedule_cases.txt",
                     "lr_schedule_reference.py", 24);
}

TEST(Equality, OptimizersClippingAndScalingArePythons) {
  if (python().empty()) GTEST_SKIP() << "no .venv with torch: run scripts/setup";
  expect_same_output(in_build("bin/print_optimizer"), "optimizer_cases.txt",
                     "optimizer_reference.py", 23);
}

struct NamedTraining {
  const char* name;
  int world_size;
  Words options;
};

const NamedTraining kNamedTrainings[] = {
    {"one rank", 1, {"--optimizer", "sgd", "--lr", "0.1", "--momentum", "0.9"}},
    {"sgd", 2, {"--optimizer", "sgd", "--lr", "0.1", "--momentum", "0"}},
    {"sgd with momentum and weight decay",
     2,
     {"--optimizer", "sgd", "--lr", "0.05", "--momentum", "0.9", "--weight-decay", "0.001"}},
    {"adamw", 2, {"--optimizer", "adamw", "--lr", "0.003", "--weight-decay", "0.01"}},
    {"uneven batches on three ranks",
     3,
     {"--optimizer", "adamw", "--lr", "0.001", "--batch-size", "50"}},
    {"adam with parameter groups, warm-up, cosine and accumulation",
     2,
     {"--optimizer", "adam", "--lr", "0.003", "--weight-decay", "0.1", "--no-decay-1d",
      "--warmup-steps", "5", "--lr-schedule", "cosine:eta_min=1e-5", "--batch-size", "16",
      "--grad-accumulation", "4"}},
    {"accumulation with the mean over batches",
     2,
     {"--lr", "0.05", "--momentum", "0.9", "--batch-size", "34", "--grad-accumulation", "2",
      "--accumulation-mean", "batches"}},
    {"accumulation with the mean over samples",
     2,
     {"--lr", "0.05", "--momentum", "0.9", "--batch-size", "34", "--grad-accumulation", "2"}},
    {"gradients summed in bf16",
     3,
     {"--lr", "0.1", "--momentum", "0.9", "--grad-comm", "bf16", "--clip-norm", "1"}},
    {"gradients summed in fp16", 2, {"--lr", "0.1", "--momentum", "0.9", "--grad-comm", "fp16"}},
    {"bf16, clipping and one-cycle",
     2,
     {"--optimizer", "sgd", "--lr", "0.2", "--precision", "bf16", "--clip-norm", "0.3",
      "--lr-schedule", "one-cycle", "--max-steps", "30"}},
    {"fp16 with overflows",
     2,
     {"--optimizer", "adamw", "--lr", "0.003", "--precision", "fp16", "--loss-scale", "134217728",
      "--max-steps", "30"}},
};

Words joined(Words command, const Words& more) {
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

struct Training {
  int world_size;
  Words options;
};

// One after the other, by one process.
void train_in_python(const std::vector<Training>& trainings) {
  TemporaryFolder folder;
  nlohmann::json cases;
  for (const Training& training : trainings)
    cases.push_back({{"world_size", training.world_size}, {"options", training.options}});
  folder.write("cases.json", cases.dump());
  Process reference({python(), in_source("tests/reference/train_cases.py"), folder / "cases.json"},
                    {}, folder / "reference");
  ASSERT_EQ(reference.wait(std::chrono::minutes(3)), 0) << reference.error();
}

TEST(Equality, LossesArePythonsBitForBit) {
  if (python().empty()) GTEST_SKIP() << "no .venv with torch: run scripts/setup";
  TemporaryFolder folder;
  const auto file = [&](const NamedTraining& c, const std::string& name) {
    return folder / (std::to_string(&c - kNamedTrainings) + name);
  };
  const auto shared = [](const NamedTraining& c) {
    return joined({"--epochs", "2", "--seed", "11", "--data", in_source("data/digits")}, c.options);
  };
  std::vector<Training> trainings;
  for (const NamedTraining& c : kNamedTrainings) {
    trainings.push_back(
        {c.world_size, joined(shared(c), {"--save-init", file(c, "init.safetensors"), "--metrics",
                                          file(c, "python.jsonl")})});
  }
  train_in_python(trainings);
  for (const NamedTraining& c : kNamedTrainings) {
    SCOPED_TRACE(c.name);
    // Another seed of the weights shows that they come from the file.
    Ranks ours(c.world_size, joined(trainer({"--init-from", file(c, "init.safetensors"),
                                             "--metrics", file(c, "ours.jsonl")}),
                                    shared(c)));
    ASSERT_EQ(ours.wait(), std::vector<int>(c.world_size, 0)) << ours.errors();
    const std::vector<double> expected = losses(file(c, "python.jsonl"));
    EXPECT_GT(expected.size(), 10u);
    EXPECT_EQ(losses(file(c, "ours.jsonl")), expected);
  }
}

constexpr std::size_t kSteps = 40;

// Both initialise by themselves: the same seed gives the same weights.
void expect_same_losses(const std::vector<Training>& trainings) {
  TemporaryFolder folder;
  const Words shared = {"--max-steps", std::to_string(kSteps), "--seed", "3", "--lr-schedule",
                        "constant",    "--warmup-steps",       "0"};
  const auto metrics = [&](std::size_t i, const std::string& whose) {
    return Words{"--metrics", folder / (std::to_string(i) + whose)};
  };
  std::vector<Training> pythons;
  for (std::size_t i = 0; i < trainings.size(); ++i) {
    pythons.push_back({trainings[i].world_size,
                       joined(joined(shared, trainings[i].options), metrics(i, "python"))});
  }
  train_in_python(pythons);
  for (std::size_t i = 0; i < trainings.size(); ++i) {
    const auto& [world_size, options] = trainings[i];
    SCOPED_TRACE(testing::PrintToString(options) + " with ranks: " + std::to_string(world_size));
    const bool text = std::any_of(options.begin(), options.end(),
                                  [](const std::string& word) { return word.starts_with("gpt:"); });
    Ranks ours(world_size, joined(trainer({"--task", text ? "text" : "digits"}),
                                  joined(joined(shared, options), metrics(i, "ours"))));
    ASSERT_EQ(ours.wait(), std::vector<int>(world_size, 0)) << ours.errors();
    const std::vector<double> expected = losses(metrics(i, "python")[1]);
    EXPECT_EQ(expected.size(), kSteps);
    EXPECT_EQ(losses(metrics(i, "ours")[1]), expected);
  }
}

std::string beginning_of(const std::string& path, std::size_t bytes) {
  std::string text(bytes, '\0');
  std::ifstream(path).read(text.data(), static_cast<std::streamsize>(bytes));
  return text;
}

// TORCHBRIDGE_COMPLETE=1: with 1 and 4 ranks too.
std::vector<int> world_sizes() {
  return getenv("TORCHBRIDGE_COMPLETE") ? std::vector<int>{1, 2, 4} : std::vector<int>{2};
}

TEST(Equality, GptLossesArePythonsBitForBit) {
  if (python().empty()) GTEST_SKIP() << "no .venv with torch: run scripts/setup";
  TemporaryFolder folder;
  // Evaluated in a moment.
  folder.write("text.txt", beginning_of(in_source("data/text/pentateuch.txt"), 50'000));
  const Words gpt = {"--data",
                     folder / "text.txt",
                     "--batch-size",
                     "4",
                     "--optimizer",
                     "adamw",
                     "--lr",
                     "0.001",
                     "--weight-decay",
                     "0.1",
                     "--no-decay-1d",
                     "--clip-norm",
                     "1"};
  const std::string model = "gpt:layers=2,heads=2,width=64,context=32",
                    with_dropout = model + ",dropout=0.1";
  const Words kModels[] = {
      {"--model", model},
      {"--model", with_dropout, "--precision", "bf16", "--grad-accumulation", "2"},
      {"--model", with_dropout, "--seed-per-rank", "--fp32-precision", "tf32"}};
  std::vector<Training> trainings;
  for (const int world_size : world_sizes()) {
    for (const Words& each : kModels) trainings.push_back({world_size, joined(gpt, each)});
  }
  expect_same_losses(trainings);
}

TEST(Equality, CnnLossesArePythonsBitForBit) {
  if (python().empty()) GTEST_SKIP() << "no .venv with torch: run scripts/setup";
  const Words kPrecisions[] = {{"--precision", "fp32"}, {"--precision", "bf16"}};
  const Words cnn = {"--data",      in_source("data/digits"),
                     "--model",     "cnn:8,16",
                     "--optimizer", "sgd",
                     "--lr",        "0.05",
                     "--momentum",  "0.9",
                     "--clip-norm", "0.5"};
  std::vector<Training> trainings;
  for (const int world_size : world_sizes()) {
    for (const Words& precision : kPrecisions)
      trainings.push_back({world_size, joined(cnn, precision)});
  }
  expect_same_losses(trainings);
}

TEST(Equality, PythonReadsOurCheckpoints) {
  if (python().empty()) GTEST_SKIP() << "no .venv with torch: run scripts/setup";
  TemporaryFolder folder;
  Ranks ranks(2, trainer({"--max-steps", "3", "--optimizer", "adamw", "--checkpoint-dir",
                          folder / "runs"}));
  ASSERT_EQ(ranks.wait(), kTwoGood) << ranks.errors();
  const std::string out = run({python(), "-c", R"(
import sys
from safetensors.torch import load_file
for name in ("model", "optimizer-00000-of-00001", "rank-00000", "rank-00001"):
    for key, value in sorted(load_file(f"{sys.argv[1]}/{name}.safetensors").items()):
        print(name, key, list(value.shape), value.dtype)
)",
                               folder / "runs/step-00000003"});
  EXPECT_TRUE(contains(out, "model layers.0.weight [128, 64] torch.float32\n"));
  EXPECT_TRUE(
      contains(out, "optimizer-00000-of-00001 layers.4.bias.exp_avg_sq [10] torch.float32\n"));
  EXPECT_TRUE(contains(out, "rank-00001 cpu_generator [5056] torch.uint8\n"));
}

// The mapping of docs/use/optimizers.md: Python's numbers of parameters are the positions of their
// names.
TEST(Equality, PythonsOptimizerTakesOurState) {
  if (python().empty()) GTEST_SKIP() << "no .venv with torch: run scripts/setup";
  TemporaryFolder folder;
  Ranks ranks(1, trainer({"--max-steps", "3", "--optimizer", "adamw", "--no-decay-1d",
                          "--checkpoint-dir", folder / "runs"}));
  ASSERT_EQ(ranks.wait(), std::vector<int>{0}) << ranks.errors();
  const std::string out = run({python(), "-c", R"(
import sys
import torch
from safetensors.torch import load_file
weights = load_file(sys.argv[1] + "/model.safetensors")
saved = load_file(sys.argv[1] + "/optimizer-00000-of-00001.safetensors")
names = sorted(name for name in weights if weights[name].dim() > 1) + sorted(name for name in weights if weights[name].dim() <= 1)
parameters = [weights[name].requires_grad_() for name in names]
groups = [dict(params=[p for p in parameters if p.dim() > 1]), dict(params=[p for p in parameters if p.dim() <= 1])]
optimizer = torch.optim.AdamW(groups, fused=True)
state = {}
for name, tensor in saved.items():
    parameter, kind = name.rsplit(".", 1)
    state.setdefault(names.index(parameter), {})[kind] = tensor.clone()
optimizer.load_state_dict(dict(state=state, param_groups=optimizer.state_dict()["param_groups"]))
for parameter in parameters:
    parameter.grad = torch.ones_like(parameter)
fresh = torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))], fused=True)
fresh.param_groups[0]["params"][0].grad = torch.ones(2)
fresh.step()
assert set(fresh.state_dict()["state"][0]) == set(state[0]), state[0].keys()
optimizer.step()
for number, name in enumerate(names):
    after = optimizer.state_dict()["state"][number]
    assert after["step"] == 4, after["step"]
    torch.testing.assert_close(after["exp_avg"], 0.9 * saved[name + ".exp_avg"] + 0.1)
print(len(names), "parameters")
)",
                               folder / "runs/step-00000003"});
  EXPECT_EQ(out, "6 parameters\n");
}

}  // namespace
