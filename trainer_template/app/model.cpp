#include "model.h"

#include <torch/nn/modules/activation.h>
#include <torchbridge/train/data/linear.h>

using torchbridge::train::Linear;

Mlp::Mlp(std::int64_t inputs, const std::vector<std::int64_t>& hidden, std::int64_t classes) {
  // One by one: as arguments of a single Sequential(...) their order of construction, and so their initial weights,
  // would be unspecified.
  for (std::int64_t width : hidden) {
    layers_->push_back(Linear(inputs, width));
    layers_->push_back(torch::nn::ReLU());
    inputs = width;
  }
  layers_->push_back(Linear(inputs, classes));
  register_module("layers", layers_);
}

at::Tensor Mlp::forward(const at::Tensor& inputs) { return layers_->forward(inputs); }
