// The tensors of a torch::nn::Module: the one place of the runtime that knows modules.
#pragma once

#include <torch/nn/module.h>

#include <unordered_set>

#include <torchbridge/train/named_tensors.h>

namespace torchbridge::train {

inline ModelTensors tensors_of(const torch::nn::Module& model) {
  ModelTensors tensors;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& item : model.named_parameters()) {
    if (seen.insert(item.value().unsafeGetTensorImpl()).second) {
      tensors.parameters.emplace_back(item.key(), item.value());
    }
  }
  for (const auto& item : model.named_buffers()) tensors.buffers.emplace_back(item.key(), item.value());
  return tensors;
}

}  // namespace torchbridge::train
