// The model that is trained.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>

#include <cstdint>
#include <vector>

// Linear layers with ReLU between them. Its parameters are called as in Python: layers.0.weight, layers.0.bias ...
class Mlp : public torch::nn::Module {
 public:
  Mlp(std::int64_t inputs, const std::vector<std::int64_t>& hidden, std::int64_t classes);
  at::Tensor forward(const at::Tensor& inputs);

 private:
  torch::nn::Sequential layers_;
};
