#include "model.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/pooling.h>
#include <torchbridge/train/errors.h>
#include <torchbridge/train/linear.h>

#include <string>

using torchbridge::train::Linear;

namespace {

// Layers are added one by one: as arguments of a single Sequential(...) their order of construction, and so their initial
// weights, would be unspecified.

// Linear layers with ReLU between them. Its parameters are called as in Python: layers.0.weight, layers.0.bias ...
class Mlp : public Model {
 public:
  Mlp(const std::vector<std::int64_t>& hidden, const ImageShape& shape) {
    std::int64_t inputs = shape.rows * shape.columns;
    for (std::int64_t width : hidden) {
      layers_->push_back(Linear(inputs, width));
      layers_->push_back(torch::nn::ReLU());
      inputs = width;
    }
    layers_->push_back(Linear(inputs, shape.classes));
    register_module("layers", layers_);
  }
  at::Tensor forward(const at::Tensor& inputs) override { return layers_->forward(inputs); }

 private:
  torch::nn::Sequential layers_;
};

// Stages of convolution, batch normalisation and ReLU, each but the last followed by pooling to half the size.
class Cnn : public Model {
 public:
  Cnn(const std::vector<std::int64_t>& channels, const ImageShape& shape) : rows_(shape.rows), columns_(shape.columns) {
    std::int64_t inputs = 1;
    for (std::int64_t width : channels) {
      if (inputs > 1) features_->push_back(torch::nn::MaxPool2d(2));
      features_->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(inputs, width, 3).padding(1)));
      features_->push_back(torch::nn::BatchNorm2d(width));
      features_->push_back(torch::nn::ReLU());
      inputs = width;
    }
    features_->push_back(torch::nn::AdaptiveAvgPool2d(1));
    register_module("features", features_);
    classifier_ = register_module("classifier", Linear(inputs, shape.classes));
  }
  at::Tensor forward(const at::Tensor& inputs) override {
    return classifier_->forward(features_->forward(inputs.view({-1, 1, rows_, columns_})).flatten(1));
  }

 private:
  std::int64_t rows_, columns_;
  torch::nn::Sequential features_;
  Linear classifier_{nullptr};
};

}  // namespace

std::shared_ptr<Model> make_model(const ModelSpec& spec, const ImageShape& shape) {
  if (spec.kind == "mlp") return std::make_shared<Mlp>(spec.widths, shape);
  const std::int64_t smallest = std::int64_t{1} << (spec.widths.size() - 1);
  if (shape.rows < smallest || shape.columns < smallest) {
    throw torchbridge::train::TrainError("--model cnn of " + std::to_string(spec.widths.size()) + " stages needs images of " +
                                         std::to_string(smallest) + " pixels or more each way");
  }
  return std::make_shared<Cnn>(spec.widths, shape);
}
