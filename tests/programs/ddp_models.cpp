#include "tests/programs/ddp_models.h"

#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/pooling.h>
#include <torchbridge/model_tensors.h>
#include <torchbridge/task.h>

namespace {

namespace nn = torch::nn;
using torchbridge::train::DistributedDataParallel;
using torchbridge::train::Linear;

constexpr std::int64_t kPixels = 64, kClasses = 10;

at::Tensor flat_floats(const at::Tensor& pixels) {
  return pixels.view({-1, kPixels}).to(at::kFloat).div(255);
}

struct Mlp : nn::Module {
  Mlp() {
    layers->push_back(Linear(kPixels, 128));
    layers->push_back(nn::ReLU());
    layers->push_back(Linear(128, 96));
    layers->push_back(nn::ReLU());
    layers->push_back(Linear(96, kClasses));
    register_module("layers", layers);
  }
  at::Tensor forward(const StepInputs& inputs) {
    return layers->forward(flat_floats(inputs.pixels));
  }
  nn::Sequential layers;
};

struct Cnn : nn::Module {
  Cnn() {
    features->push_back(nn::Conv2d(nn::Conv2dOptions(1, 8, 3).padding(1)));
    features->push_back(nn::BatchNorm2d(8));
    features->push_back(nn::ReLU());
    features->push_back(nn::MaxPool2d(2));
    features->push_back(nn::Conv2d(nn::Conv2dOptions(8, 16, 3).padding(1)));
    features->push_back(nn::BatchNorm2d(16));
    features->push_back(nn::ReLU());
    features->push_back(nn::AdaptiveAvgPool2d(2));
    register_module("features", features);
    classifier = register_module("classifier", Linear(64, kClasses));
  }
  at::Tensor forward(const StepInputs& inputs) {
    const at::Tensor images = inputs.pixels.unsqueeze(1).to(at::kFloat).div(255);
    return classifier->forward(features->forward(images).flatten(1));
  }
  nn::Sequential features;
  Linear classifier{nullptr};
};

// Each pixel is a token: its grey value, at its place.
struct Embedding : nn::Module {
  explicit Embedding(bool sparse) {
    tokens = register_module("tokens", nn::Embedding(nn::EmbeddingOptions(256, 12).sparse(sparse)));
    places = register_module("places", nn::Embedding(nn::EmbeddingOptions(kPixels, 12)));
    hidden = register_module("hidden", Linear(12, 32));
    classifier = register_module("classifier", Linear(32, kClasses));
  }
  at::Tensor forward(const StepInputs& inputs) {
    const at::Tensor embedded =
        tokens->forward(inputs.pixels.view({-1, kPixels}).to(at::kLong)) + places->weight;
    return classifier->forward(at::relu(hidden->forward(embedded)).mean(1));
  }
  nn::Embedding tokens{nullptr}, places{nullptr};
  Linear hidden{nullptr}, classifier{nullptr};
};

// One output is in no loss, one is there only at times, and one layer is never used.
struct Branches : nn::Module {
  using Output = std::tuple<at::Tensor, std::map<std::string, at::Tensor>, std::vector<at::Tensor>>;
  Branches() {
    trunk = register_module("trunk", Linear(kPixels, 32));
    first = register_module("first", Linear(32, kClasses));
    second = register_module("second", Linear(32, kClasses));
    third = register_module("third", Linear(32, kClasses));
    unused = register_module("unused", Linear(32, kClasses));
  }
  Output forward(const StepInputs& inputs) {
    const at::Tensor common = at::relu(trunk->forward(flat_floats(inputs.pixels)));
    std::vector<at::Tensor> more;
    if (inputs.with_branch) more.push_back(third->forward(common));
    return {first->forward(common), {{"second", second->forward(common)}}, std::move(more)};
  }
  Linear trunk{nullptr}, first{nullptr}, second{nullptr}, third{nullptr}, unused{nullptr};
};

// One square layer used twice, and its weight once more under another name.
struct Shared : nn::Module {
  Shared() {
    input = register_module("input", Linear(kPixels, 32));
    middle = register_module("middle", Linear(32, 32));
    register_module("again", middle.ptr());
    classifier = register_module("classifier", Linear(32, kClasses));
    tied = register_parameter("tied", middle->weight);
  }
  at::Tensor forward(const StepInputs& inputs) {
    at::Tensor hidden = at::relu(input->forward(flat_floats(inputs.pixels)));
    hidden = at::relu(middle->forward(at::relu(middle->forward(hidden))));
    return classifier->forward(at::linear(hidden, tied));
  }
  Linear input{nullptr}, middle{nullptr}, classifier{nullptr};
  at::Tensor tied;
};

at::Tensor loss_of(const at::Tensor& outputs, const StepInputs& inputs) {
  return at::cross_entropy_loss(outputs, inputs.targets);
}

at::Tensor loss_of(const Branches::Output& output, const StepInputs& inputs) {
  at::Tensor loss = loss_of(std::get<0>(output), inputs);
  for (const at::Tensor& more : std::get<2>(output)) loss = loss + loss_of(more, inputs);
  if (inputs.all_outputs) loss = loss + loss_of(std::get<1>(output).at("second"), inputs);
  return loss;
}

template <class Model>
CaseModel wrap(std::shared_ptr<Model> model) {
  return {.tensors = torchbridge::train::tensors_of(*model),
          .loss =
              [model](DistributedDataParallel& ddp, const StepInputs& inputs) {
                return loss_of(ddp.forward([&] { return model->forward(inputs); }), inputs);
              },
          .module = model};
}

CaseModel load_jit(const std::string& file) {
  auto module = std::make_shared<torch::jit::Module>(torch::jit::load(file));
  module->train();
  return {.tensors = torchbridge::train::tensors_of(*module),
          .loss =
              [module](DistributedDataParallel& ddp, const StepInputs& inputs) {
                const c10::IValue output =
                    ddp.forward(*module, std::vector<c10::IValue>{inputs.pixels});
                return loss_of(output.toTensor(), inputs);
              },
          .module = module};
}

}  // namespace

CaseModel make_case_model(const std::string& kind) {
  if (kind == "mlp") return wrap(std::make_shared<Mlp>());
  if (kind == "cnn") return wrap(std::make_shared<Cnn>());
  if (kind == "embedding") return wrap(std::make_shared<Embedding>(false));
  if (kind == "sparse_embedding") return wrap(std::make_shared<Embedding>(true));
  if (kind == "branches") return wrap(std::make_shared<Branches>());
  if (kind == "shared") return wrap(std::make_shared<Shared>());
  if (kind == "frozen") {
    auto model = std::make_shared<Mlp>();
    model->layers[0]->parameters()[0].set_requires_grad(false);
    return wrap(std::move(model));
  }
  if (kind.starts_with("jit:")) return load_jit(kind.substr(4));
  throw torchbridge::train::TrainError("model '" + kind + "' is not known");
}
