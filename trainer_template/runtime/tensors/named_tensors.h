// Tensors with the names that Python's state_dict gives them.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace torchbridge::train {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// The parameters and buffers of a model, in the order of its modules. A parameter that two modules share is listed
// once, under its first name. The tensors share memory with the model.
struct ModelTensors {
  NamedTensors parameters;
  NamedTensors buffers;
  // The other names of those that are shared, each with its first name: "lm_head.weight", "wte.weight".
  std::map<std::string, std::string> aliases;
  // Names of parameters whose gradients are sparse tensors (Embedding with `sparse`).
  std::set<std::string> sparse_gradients;
  std::string name = "Model";
  bool has_sync_batch_norm = false;

  NamedTensors all() const {
    NamedTensors tensors = parameters;
    tensors.insert(tensors.end(), buffers.begin(), buffers.end());
    return tensors;
  }
};

}  // namespace torchbridge::train
