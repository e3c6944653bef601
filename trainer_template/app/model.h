// The model that is trained.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>

#include <cstdint>
#include <memory>

#include "config.h"

// Images come as (N, rows * columns), classes go out as (N, classes).
class Model : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& inputs) = 0;
};

struct ImageShape {
  std::int64_t rows = 0, columns = 0, classes = 0;
};

std::shared_ptr<Model> make_model(const ModelSpec& spec, const ImageShape& shape);
