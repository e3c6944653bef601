// The parameters and buffers of a model, with the names that Python's state_dict gives them.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace torch::nn {
class Module;
}
namespace torch::jit {
struct Module;
}

namespace torchbridge::train {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// The parameters and buffers of a model, in the order of its modules. A parameter that two modules
// share is listed once, under its first name. The tensors share memory with the model.
struct ModelTensors {
  NamedTensors parameters;
  NamedTensors buffers;
  // The other names of those that are shared, each with its first name: "lm_head.weight",
  // "wte.weight".
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

// Parameters and buffers in the order in which they were registered, which is the order of Python's
// state_dict when the layers are registered as Python assigns them. Undefined ones (a Linear
// without bias) are left out.
ModelTensors tensors_of(const torch::nn::Module& model);

// Those of the part that is registered as `part`, with the names that they have in the model:
// "critic.output.weight". Throws TrainError if it has none.
ModelTensors tensors_of(const torch::nn::Module& model, const std::string& part);

// The same of a TorchScript module. Its sparse embeddings are found as long as they keep their
// constant `sparse`, as those that torch.jit.script compiles do; a traced one has none and needs
// `sparse_gradients` to be filled in.
ModelTensors tensors_of(const torch::jit::Module& model);

}  // namespace torchbridge::train
