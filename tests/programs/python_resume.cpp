// Trains a small model whose output layer is its embedding: python_resume MODE FOLDER. Mode "begin"
// trains from init.safetensors, and saves for Python; "resume" goes on from the checkpoints in
// from-python-OPTIMIZER. A line a run: OPTIMIZER RUN LOSS ..., losses of this rank as hexadecimal
// floats. tests/reference/python_resume.py is the same program in Python.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/embedding.h>
#include <torchbridge/checkpoint.h>
#include <torchbridge/ddp.h>
#include <torchbridge/launch.h>
#include <torchbridge/model_tensors.h>
#include <torchbridge/optimizer.h>
#include <torchbridge/process_group.h>
#include <torchbridge/task.h>

#include "trainer_template/runtime/checkpoint/safetensors.h"

using namespace torchbridge::train;
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kWords = 24, kWidth = 8, kSaved = 3, kLast = 6;

struct Head : torch::nn::Module {
  explicit Head(const at::Tensor& shared) : weight(register_parameter("weight", shared)) {}
  at::Tensor weight;
};

// Its head is a second name of the embedding, or has none.
struct Model : torch::nn::Module {
  explicit Model(bool named_twice) {
    register_module("wte", wte);
    register_module("fc", fc);
    register_module("bn", bn);
    if (named_twice) register_module("lm_head", std::make_shared<Head>(wte->weight));
  }
  at::Tensor forward(const at::Tensor& words) {
    return at::linear(at::relu(bn->forward(fc->forward(wte->forward(words)))), wte->weight);
  }

  torch::nn::Embedding wte{kWords, kWidth};
  Linear fc{kWidth, kWidth};
  torch::nn::BatchNorm1d bn{kWidth};
};

std::unique_ptr<Optimizer> make_optimizer(const std::string& kind, const ModelTensors& tensors,
                                          bool zero, ProcessGroup& group) {
  const auto make = [&](std::vector<ParameterGroup> groups) {
    if (kind == "sgd") return make_sgd(std::move(groups));
    return kind == "adam" ? make_adam(std::move(groups)) : make_adamw(std::move(groups));
  };
  OptimizerOptions options{.lr = kind == "sgd" ? 0.05 : 0.01};
  options.momentum = 0.9;
  options.amsgrad = kind == "adam";
  options.weight_decay = 0.1;
  auto groups = groups_by_decay(tensors.parameters, options, {.exclude_1d = kind == "adamw"});
  return zero ? make_zero(std::move(groups), group, make) : make(std::move(groups));
}

// One training from some step on.
struct Run {
  std::string name;
  bool from_python = false, named_twice = true, zero = false;
};

class Training {
 public:
  Training(const fs::path& folder, const std::string& kind, const Run& run, ProcessGroup& group)
      : folder_(folder),
        kind_(kind),
        run_(run),
        group_(group),
        model_(run.named_twice),
        tensors_(tensors_of(model_)),
        optimizer_(make_optimizer(kind, tensors_, run.zero, group)) {}

  void run() {
    CheckpointOptions saving;
    saving.folder = folder_ / (kind_ + "-" + run_.name);
    if (run_.from_python) saving.resume = folder_ / ("from-python-" + kind_);
    Checkpoints checkpoints(group_, saving);
    init_from(folder_ / "init.safetensors", tensors_, group_);
    TrainState progress;
    if (run_.from_python) progress = checkpoints.resume(tensors_, *optimizer_).value().state;
    DistributedDataParallel ddp(tensors_, group_, {.comm_hook = optimizer_->comm_hook()});
    std::string losses;
    while (progress.step < kLast) {
      losses += step(ddp, progress.step);
      ++progress.step;
      progress.buckets = ddp.buckets();
      if (progress.step == kSaved) checkpoints.save(progress, tensors_, *optimizer_);
    }
    checkpoints.finish();
    std::printf("%s %s%s\n", kind_.c_str(), run_.name.c_str(), losses.c_str());
  }

 private:
  std::string step(DistributedDataParallel& ddp, std::int64_t index) {
    const at::Tensor words =
        read_safetensors(folder_ / "words.safetensors").at(0).second[index][group_.rank()];
    optimizer_->zero_grad();
    const at::Tensor loss = at::cross_entropy_loss(
        ddp.forward([&] { return model_.forward(words); }), (words * 3 + 1).remainder(kWords));
    loss.backward();
    optimizer_->step();
    char text[40];
    std::snprintf(text, sizeof text, " %a", loss.item<double>());
    return text;
  }

  const fs::path folder_;
  const std::string kind_;
  const Run run_;
  ProcessGroup& group_;
  Model model_;
  const ModelTensors tensors_;
  const std::unique_ptr<Optimizer> optimizer_;
};

void train(bool from_python, const fs::path& folder, ProcessGroup& group) {
  const Run kRuns[] = {
      {.name = "whole"},
      {.name = "zero", .zero = true},
      {.name = "from_python", .from_python = true},
      {.name = "from_python_named_once", .from_python = true, .named_twice = false},
      {.name = "from_python_zero", .from_python = true, .zero = true}};
  for (const char* kind : {"sgd", "adam", "adamw"}) {
    for (const Run& run : kRuns) {
      if (run.from_python == from_python) Training(folder, kind, run, group).run();
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return static_cast<int>(ExitCode::kBadOptions);
  return run_job(
      torchbridge::LaunchOrigin(torchbridge::EnvMap::from(environ)), [] { return GroupOptions{}; },
      [&](ProcessGroup& group) { train(std::string(argv[1]) == "resume", argv[2], group); });
}
