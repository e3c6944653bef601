// Weights in files of Python's torch.save: read, or rejected without executing their content.
#include <filesystem>
#include <fstream>
#include <map>

#include "tests/support/ranks.h"

namespace {

constexpr const char* kWriteFiles = R"(
import collections, os, sys, torch
folder = sys.argv[1]
torch.manual_seed(5)
layers = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
weights = collections.OrderedDict(("layers." + name, value.clone()) for name, value in layers.state_dict().items())
from safetensors.torch import save_file
save_file(dict(weights), folder + "/weights.safetensors")

def save(name, content): torch.save(content, f"{folder}/{name}.pt")
save("state_dict", weights)
save("plain_dict", dict(weights))
save("parameters", {name: torch.nn.Parameter(value) for name, value in weights.items()})
save("ddp", collections.OrderedDict(("module." + name, value) for name, value in weights.items()))
optimizer = torch.optim.AdamW(layers.parameters(), lr=0.1)
layers(torch.ones(1, 64)).sum().backward()
optimizer.step()
optimizer = optimizer.state_dict()
save("nested", {"model": weights, "optimizer": optimizer, "epoch": 3, "note": "x", "best": 0.5})
together = torch.cat([value.flatten() for value in weights.values()] + [torch.zeros(7)])
views, at = {}, 0
for name, value in weights.items():
    views[name] = together[at:at + value.numel()].view_as(value)
    at += value.numel()
save("views", views)
save("transposed", {name: value.t().contiguous().t() for name, value in weights.items()})

class Evil:
    def __reduce__(self): return os.system, (f"touch {folder}/executed",)
save("evil", {"layers.0.weight": Evil()})
save("model", layers)
save("negated", {name: torch._neg_view(value) for name, value in weights.items()})
torch.save(weights, folder + "/protocol4.pt", pickle_protocol=4)
save("other", {"layers.0.weight": torch.zeros(2), **{n: v for n, v in weights.items() if n != "layers.0.weight"}})
save("complex", {"w": torch.zeros(2, dtype=torch.complex64)})
save("no_weights", {"epoch": 3, "optimizer": optimizer})
torch.save(weights, folder + "/legacy.pt", _use_new_zipfile_serialization=False)

def resume(name, maximize=False, momentum=0.9, without=(), **more):
    sgd = torch.optim.SGD(layers.parameters(), lr=0.1, momentum=momentum, maximize=maximize)
    sgd.step()
    saved = sgd.state_dict()
    saved["state"] = {number: state for number, state in saved["state"].items() if number not in without}
    save("resume_" + name, {"model": weights, "optimizer": saved, "step": 3, **more})
def scaler(scale, tracker): return {"scale": scale, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "_growth_tracker": tracker}
resume("good", step=3.0, epoch=0, epoch_samples_consumed=1024, scaler=scaler(1024.0, 5))
resume("end_of_epoch", epoch_samples_consumed=1437, scaler={})
resume("no_momentum", momentum=0)
resume("not_begun", without=range(4), step=0)
resume("without_one", without=[2])
resume("without_all", without=range(4))
resume("half_step", step=3.5)
resume("text_step", step="3")
resume("large_step", step=10**12)
resume("negative_epoch", epoch=-1)
resume("beyond", epoch_samples_consumed=99999)
resume("maximize", maximize=True)
for name, scale in (("nan", float("nan")), ("inf", float("inf")), ("zero", 0.0), ("negative", -2.0), ("double", 1e300)):
    resume("scale_" + name, scaler=scaler(scale, 0))
resume("tracker", scaler=scaler(1.0, -1))
for name, step in (("nan", float("nan")), ("negative", -5.0), ("half", 2.5)):
    state = {number: {**values, "step": torch.tensor(step)} for number, values in optimizer["state"].items()}
    save("adamw_step_" + name, {"model": weights, "optimizer": {**optimizer, "state": state}, "step": 3})
good = open(folder + "/state_dict.pt", "rb").read()
open(folder + "/cut.pt", "wb").write(good[:len(good) // 2])
open(folder + "/empty.pt", "wb").close()
open(folder + "/text.pt", "w").write("weights")
# One bit of a weight, which torch.load does not notice.
value = weights["layers.0.weight"].numpy().tobytes()
place = good.index(value) + 1001
open(folder + "/flipped.pt", "wb").write(good[:place] + bytes([good[place] ^ 16]) + good[place + 1:])
)";

class TorchFile : public ::testing::Test {
 protected:
  void SetUp() override {
    if (python().empty()) GTEST_SKIP() << "no .venv with torch: run scripts/setup";
    Process process({python(), "-c", kWriteFiles, folder_.path()}, {}, folder_ / "python");
    ASSERT_EQ(process.wait(std::chrono::steady_clock::now() + std::chrono::seconds(120)), 0) << process.error();
  }

  Words training(const std::string& file) const {
    return trainer({"--init-from", folder_ / file, "--model", "mlp:32", "--max-steps", "1", "--metrics",
                    folder_ / (file + ".jsonl"), "--data", SOURCE_DIR "/data/digits"});
  }

  TemporaryFolder folder_;
};

TEST_F(TorchFile, LoadsTheSavedWeights) {
  Ranks from_safetensors(1, training("weights.safetensors"));
  ASSERT_EQ(from_safetensors.wait(), (std::vector<int>{0})) << from_safetensors.errors();
  const auto expected = losses(folder_ / "weights.safetensors.jsonl");
  ASSERT_EQ(expected.size(), 1u);
  for (const char* file :
       {"state_dict.pt", "plain_dict.pt", "parameters.pt", "ddp.pt", "nested.pt", "views.pt", "transposed.pt"}) {
    Ranks ranks(1, training(file));
    EXPECT_EQ(ranks.wait(), (std::vector<int>{0})) << file << ranks.errors();
    EXPECT_EQ(losses(folder_ / (std::string(file) + ".jsonl")), expected) << file;
  }
}

TEST_F(TorchFile, RejectsOtherFilesWithoutExecutingThem) {
  const struct {
    const char* file;
    const char* message;
  } kCases[] = {
      {"evil.pt", "class or function posix.system is not allowed: only plain values and tensors are read"},
      {"model.pt",
       "class or function torch.nn.modules.container.Sequential is not allowed: only plain values and tensors are "
       "read"},
      {"negated.pt", "a tensor has metadata 'neg', which is not supported"},
      {"protocol4.pt", "pickle protocol 4 is not supported, only 2 is"},
      {"other.pt", "has 'layers.0.weight' with shape [2], this model with [32, 64]"},
      {"complex.pt", "class or function torch.ComplexFloatStorage"},
      {"no_weights.pt",
       "contains no state_dict, also not under 'model', 'state_dict' or 'model_state_dict'; its keys are 'epoch', "
       "'optimizer'"},
      {"legacy.pt", "is not a torch.save archive (PyTorch 1.6 or later)"},
      {"cut.pt", "is damaged: "},
      {"empty.pt", "empty.pt: is empty"},
      {"flipped.pt", "is damaged: record 'data/0': CRC error"},
      {"missing.pt", "missing.pt: cannot be opened: No such file or directory"},
  };
  for (const auto& test : kCases) {
    Ranks ranks(1, training(test.file));
    EXPECT_EQ(ranks.wait(), (std::vector<int>{1})) << test.file;
    EXPECT_NE(ranks.errors().find(test.message), std::string::npos) << test.file << ": " << ranks.errors();
    EXPECT_EQ(lines_in(ranks.errors()), 1) << ranks.errors();
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "executed"));
}

TEST_F(TorchFile, ResumesOnlyFromValidState) {
  const auto resumed = [&](const std::string& file) {
    return trainer({"--resume-from-python", folder_ / file, "--model", "mlp:32", "--max-steps", "5", "--data",
                    SOURCE_DIR "/data/digits"});
  };
  for (const char* file :
       {"resume_good.pt", "resume_end_of_epoch.pt", "resume_no_momentum.pt", "resume_not_begun.pt"}) {
    Ranks ranks(1, resumed(file));
    EXPECT_EQ(ranks.wait(), (std::vector<int>{0})) << file << ranks.errors();
    EXPECT_NE(ranks.out(0).find("5 steps"), std::string::npos) << ranks.out(0);
  }
  const struct {
    const char *file, *message;
  } kCases[] = {
      {"resume_without_one.pt",
       "resume_without_one.pt: its optimizer has no state of 'layers.2.weight', which this run trains"},
      {"resume_without_all.pt", "its optimizer has no state of 'layers.0.weight', which this run trains"},
      {"resume_half_step.pt", "resume_half_step.pt has 'step' 3.5: expected a whole number from 0 to 999999999999"},
      {"resume_text_step.pt", "has 'step', which is not a number: expected a whole number"},
      {"resume_large_step.pt", "has 'step' 1e+12: expected a whole number"},
      {"resume_negative_epoch.pt", "has 'epoch' -1: expected a whole number"},
      {"resume_beyond.pt", "epoch_samples_consumed is 99999 in epoch 0, but an epoch of the training set has "},
      {"resume_maximize.pt", "its optimizer has maximize=True in param_groups, unlike this run's"},
      {"resume_scale_nan.pt", "has 'scale' nan: expected a finite loss scale above 0"},
      {"resume_scale_inf.pt", "has 'scale' inf: expected a finite loss scale"},
      {"resume_scale_zero.pt", "has 'scale' 0: expected a finite loss scale"},
      {"resume_scale_negative.pt", "has 'scale' -2: expected a finite loss scale"},
      {"resume_scale_double.pt", "has 'scale' 1e+300: expected a finite loss scale"},
      {"resume_tracker.pt", "has '_growth_tracker' -1: expected a whole number"},
  };
  for (const auto& test : kCases) {
    SCOPED_TRACE(test.file);
    Ranks ranks(1, resumed(test.file));
    expect_one_line(ranks, test.message);
  }
  for (const auto& [file, number] : std::map<std::string, std::string>{
           {"adamw_step_nan.pt", "nan"}, {"adamw_step_negative.pt", "-5"}, {"adamw_step_half.pt", "2.5"}}) {
    SCOPED_TRACE(file);
    Words command = resumed(file);
    command.insert(command.end(), {"--optimizer", "adamw"});
    Ranks ranks(1, command);
    expect_one_line(ranks, ".step' " + number + ": expected a whole number from 0 to 999999999999");
  }
}

}  // namespace
