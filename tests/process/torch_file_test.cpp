// Files of Python's torch.save: converted, or rejected without executing their content.
#include <filesystem>
#include <fstream>
#include <map>

#include "tests/support/converter.h"
#include "tests/support/paths.h"

namespace {

constexpr const char* kWriteFiles = R"(
import argparse, collections, datetime, numpy, os, pathlib, shutil, sys, torch
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
for name, prefix in (("compiled", "_orig_mod."), ("compiled_ddp", "module._orig_mod."), ("outer", "model."),
                     ("outer_compiled", "_orig_mod.transformer."), ("lightning", "model._orig_mod.")):
    save(name, {prefix + name: value for name, value in weights.items()})
save("beside", {"model": weights, "path": pathlib.Path("x"), "config": argparse.Namespace(lr=0.1), "names": {"a", "b"},
                "big": 2**100, "bytes": b"x", "array": numpy.arange(3), "date": datetime.date(2026, 1, 1),
                "keys": {(0, 1): 2, None: 3, 0.5: 4, True: 5, torch.nn.Linear: 6, b"x": 7}})
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
class Called:
    def __reduce__(self): return shutil.copyfile, (folder + "/weights.safetensors", folder + "/executed")
save("called", {"layers.0.weight": Called()})
save("model", layers)
save("control", {"layers.0.weight\x1b[2J\n": Called()})
save("negated", {name: torch._neg_view(-value) for name, value in weights.items()})
torch.save(weights, folder + "/protocol4.pt", pickle_protocol=4)
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
def changed(name, momentum=None, **options):
    sgd = torch.optim.SGD(layers.parameters(), lr=0.1, momentum=0.9, **options)
    sgd.step()
    saved = sgd.state_dict()
    if momentum: saved["state"][2]["momentum_buffer"][1][3] = momentum
    save("changed_" + name, {"model": weights, "optimizer": saved, "step": 3})
changed("nesterov", nesterov=True)
changed("nan", momentum=float("nan"))
for name, scale in (("nan", float("nan")), ("inf", float("inf")), ("zero", 0.0), ("negative", -2.0), ("double", 1e300)):
    resume("scale_" + name, scaler=scaler(scale, 0))
resume("tracker", scaler=scaler(1.0, -1))
for name, step in (("nan", float("nan")), ("negative", -5.0), ("half", 2.5)):
    state = {number: {**values, "step": torch.tensor(step)} for number, values in optimizer["state"].items()}
    save("adamw_step_" + name, {"model": weights, "optimizer": {**optimizer, "state": state}, "step": 3})
save("adamw", {"model": weights, "optimizer": optimizer, "step": 1})
save("reordered", {"model": weights, "optimizer": {**optimizer, "param_groups": [
    {**optimizer["param_groups"][0], "params": [1, 0, 2, 3]}]}})
save("twice", {"model": weights, "optimizer": {**optimizer, "param_groups": [
    {**optimizer["param_groups"][0], "params": [0, 0, 2, 3]}]}})
group = optimizer["param_groups"][0]
save("groups", {"model": {"transformer." + name: value for name, value in weights.items()}, "step": 1, "optimizer": {
    "state": {number: optimizer["state"][at] for number, at in enumerate((0, 2, 1, 3))},
    "param_groups": [{**group, "params": [0, 1]}, {**group, "params": [2, 3], "weight_decay": 0.0}]}})
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
    ASSERT_EQ(process.wait(std::chrono::seconds(120)), 0) << process.error();
  }

  Words training(const std::string& file) const {
    return trainer({"--init-from", folder_ / (file + ".safetensors"), "--model", "mlp:32",
                    "--max-steps", "1", "--metrics", folder_ / (file + ".jsonl"), "--data",
                    in_source("data/digits")});
  }

  Words resumed_from(const std::string& folder) const {
    return trainer({"--resume", folder_ / folder, "--model", "mlp:32", "--max-steps", "5", "--seed",
                    "7", "--data", in_source("data/digits")});
  }

  TemporaryFolder folder_;
};

TEST_F(TorchFile, LoadsTheSavedWeights) {
  const Words files = {"state_dict", "plain_dict",     "parameters", "ddp",     "nested",
                       "views",      "transposed",     "compiled",   "negated", "compiled_ddp",
                       "outer",      "outer_compiled", "lightning",  "beside"};
  Words command_lines;
  for (const std::string& file : files)
    command_lines.push_back(file + ".pt " + file + ".safetensors");
  EXPECT_FALSE(contains(converted(folder_, command_lines), "torchbridge.convert: "));
  Ranks from_safetensors(1, training("weights"));
  ASSERT_EQ(from_safetensors.wait(), (std::vector<int>{0})) << from_safetensors.errors();
  const auto expected = losses(folder_ / "weights.jsonl");
  ASSERT_EQ(expected.size(), 1u);
  for (const std::string& file : files) {
    Ranks ranks(1, training(file));
    EXPECT_EQ(ranks.wait(), (std::vector<int>{0})) << file << ranks.errors();
    EXPECT_EQ(losses(folder_ / (file + ".jsonl")), expected) << file;
  }
}

TEST_F(TorchFile, RejectsOtherFilesWithoutExecutingThem) {
  const struct {
    std::string file, message;
  } kCases[] = {
      {"evil",
       "evil.pt is rejected by torch.load(weights_only=True): Trying to load unsupported GLOBAL "
       "posix.system whose module posix is blocked"},
      {"called", "'layers.0.weight' is an object of shutil.copyfile, and only plain values"},
      {"control", "'layers.0.weight\\x1b[2J\\n' is an object of shutil.copyfile"},
      {"model",
       "contains an object of torch.nn.modules.container.Sequential: save model.state_dict(), not "
       "the model"},
      {"protocol4", "protocol4.pt is rejected by torch.load(weights_only=True): Unsupported oper"},
      {"no_weights",
       "contains no state_dict, also not under 'model', 'state_dict' or 'model_state_dict'; its "
       "keys are 'epoch', 'optimizer'"},
      {"legacy", "is not a torch.save archive (PyTorch 1.6 or later), or is cut off"},
      {"cut", "cut.pt is not a torch.save archive"},
      {"empty", "empty.pt is not a torch.save archive"},
      {"text", "text.pt is not a torch.save archive"},
      {"flipped", "is damaged: the checksum of its record 'state_dict/data/0' differs"},
      {"missing", "missing.pt does not exist"},
  };
  Words command_lines;
  for (const auto& test : kCases)
    command_lines.push_back(test.file + ".pt " + test.file + ".safetensors");
  const std::string errors = converted(folder_, command_lines);
  for (const auto& test : kCases) {
    EXPECT_TRUE(contains(errors, test.message));
    EXPECT_FALSE(std::filesystem::exists(folder_ / (test.file + ".safetensors"))) << test.file;
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "executed"));
}

TEST_F(TorchFile, ResumesOnlyFromValidState) {
  const struct {
    std::string file, message;  // of the converter, or of the trainer
    bool is_converted = false;
    std::string optimizer = "sgd";
  } kCases[] = {
      {"resume_good", "", true},
      {"resume_end_of_epoch", "", true},
      {"resume_no_momentum", "", true},
      {"resume_not_begun", "", true},
      {"resume_beyond",
       "epoch_samples_consumed is 99999 in epoch 0, but an epoch of the training set has ", true},
      {"resume_maximize", "is of an optimizer with maximize=True, unlike this run's", true},
      {"changed_nan", "'layers.2.weight.momentum_buffer' has values that are NaN or infinite",
       true},
      {"adamw", "was written with --optimizer adamw, this run has --optimizer sgd", true},
      {"resume_without_one",
       "resume_without_one.pt: its optimizer has no state of 'layers.2.weight': if it was frozen"},
      {"resume_without_all", "its optimizer has no state of 'layers.0.weight'"},
      {"resume_half_step",
       "resume_half_step.pt has 'step' 3.5: expected a whole number from 0 to 999999999999"},
      {"resume_text_step", "has 'step', which is not a number: expected a whole number"},
      {"resume_large_step", "has 'step' 1e+12: expected a whole number"},
      {"resume_negative_epoch", "has 'epoch' -1: expected a whole number"},
      {"resume_scale_nan", "has 'scale' nan: expected a finite loss scale above 0"},
      {"resume_scale_inf", "has 'scale' inf: expected a finite loss scale"},
      {"resume_scale_zero", "has 'scale' 0: expected a finite loss scale"},
      {"resume_scale_negative", "has 'scale' -2: expected a finite loss scale"},
      {"resume_scale_double", "has 'scale' 1e+300: expected a finite loss scale"},
      {"resume_tracker", "has '_growth_tracker' -1: expected a whole number"},
      {"adamw_step_nan", ".step' nan: expected a whole number from 0 to 999999999999"},
      {"adamw_step_negative", ".step' -5: expected a whole number"},
      {"adamw_step_half", ".step' 2.5: expected a whole number"},
      {"reordered",
       "'layers.0.bias.exp_avg' has shape [32, 64], the parameter [32]: does its optimizer"},
      {"twice", "twice.pt: its optimizer has a parameter twice"},
      {"state_dict", "contains no optimizer state_dict under 'optimizer'"},
  };
  Words command_lines;
  for (const auto& test : kCases) command_lines.push_back(test.file + ".pt " + test.file);
  const std::string errors = converted(folder_, command_lines);
  for (const auto& test : kCases) {
    SCOPED_TRACE(test.file);
    EXPECT_EQ(std::filesystem::exists(folder_ / test.file), test.is_converted);
    if (!test.is_converted) {
      EXPECT_TRUE(contains(errors, test.message));
      continue;
    }
    Ranks ranks(1, resumed_from(test.file));
    if (!test.message.empty()) {
      expect_one_line(ranks, test.message);
      continue;
    }
    EXPECT_EQ(ranks.wait(), (std::vector<int>{0})) << ranks.errors();
    EXPECT_TRUE(contains(ranks.out(0), "5 steps"));
    EXPECT_EQ(ranks.errors(), "");
  }
}

// The trainer has no option for it, so that no table shows the difference.
TEST_F(TorchFile, NamesConstantsOfAnOptimizerThatAreNotThoseOfPython) {
  converted(folder_, {"changed_nesterov.pt nesterov"});
  Ranks ranks(1, resumed_from("nesterov"));
  EXPECT_EQ(ranks.wait(), (std::vector<int>{0})) << ranks.errors();
  EXPECT_EQ(ranks.errors(), "trainer: checkpoint " + (folder_ / "nesterov/step-00000003").string() +
                                " is of an optimizer with nesterov=1; this run goes on with "
                                "nesterov=0\n");
}

TEST(Converter, PassesItsTestsInPython) {
  if (python().empty()) GTEST_SKIP() << "no .venv with torch: run scripts/setup";
  const TemporaryFolder folder;
  Process process({python(), in_source("tests/reference/convert_test.py")},
                  {{"PYTHONPATH", in_build("python")}}, folder / "python");
  EXPECT_EQ(process.wait(std::chrono::seconds(120)), 0) << process.error();
}

// Of groups without names, and of a model within another one.
TEST_F(TorchFile, TakesTheNamesOfACheckpoint) {
  Ranks begun(
      1, trainer({"--model", "mlp:32", "--no-decay-1d", "--optimizer", "adamw", "--max-steps", "1",
                  "--checkpoint-dir", folder_ / "runs", "--data", in_source("data/digits")}));
  expect_success(begun);
  const std::string out =
      converted(folder_, {"groups.pt without", "groups.pt like --like runs/step-00000001"});
  EXPECT_TRUE(contains(out,
                       "groups.pt: its optimizer has groups of 2, 2 parameters without names, "
                       "which cannot be matched to the 4 parameters of this model: give "
                       "--like CHECKPOINT"));
  Words command = resumed_from("like");
  command.insert(command.end(), {"--no-decay-1d", "--optimizer", "adamw"});
  Ranks resumed(1, command);
  expect_success(resumed);
  EXPECT_TRUE(contains(resumed.out(0), "5 steps"));
}

}  // namespace
