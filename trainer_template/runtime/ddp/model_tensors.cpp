#include <unordered_map>

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torchbridge/errors.h>
#include <torchbridge/model_tensors.h>
#include <torchbridge/sync_batch_norm.h>

#include "bridge/base/message_text.h"

namespace torchbridge::train {
namespace {

std::string joined(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

// A tensor that several modules share is listed under its first name, and its first module
// determines whether its gradient is sparse, as in Python.
class Collector {
 public:
  void parameter(const std::string& name, const at::Tensor& tensor, bool is_sparse) {
    if (!is_first(name, tensor)) return;
    tensors.parameters.emplace_back(name, tensor);
    if (is_sparse) tensors.sparse_gradients.insert(name);
  }
  void buffer(const std::string& name, const at::Tensor& tensor) {
    if (!is_first(name, tensor)) return;
    tensors.buffers.emplace_back(name, tensor);
  }
  ModelTensors tensors;

 private:
  bool is_first(const std::string& name, const at::Tensor& tensor) {
    if (!tensor.defined()) return false;
    const auto [first, fresh] = first_names_.emplace(tensor.unsafeGetTensorImpl(), name);
    if (!fresh) tensors.aliases.emplace(name, first->second);
    return fresh;
  }

  std::unordered_map<const c10::TensorImpl*, std::string> first_names_;
};

bool has_sparse_gradient(const torch::nn::Module& module) {
  if (const auto* table = dynamic_cast<const torch::nn::EmbeddingImpl*>(&module))
    return table->options.sparse();
  if (const auto* bag = dynamic_cast<const torch::nn::EmbeddingBagImpl*>(&module))
    return bag->options.sparse();
  return false;
}

bool has_sparse_gradient(const torch::jit::Module& module) {
  const auto slot = module.type()->findConstantSlot("sparse");
  if (!slot) return false;
  const c10::IValue constant = module.type()->getConstant(*slot);
  return constant.isBool() && constant.toBool();
}

}  // namespace

ModelTensors tensors_of(const torch::nn::Module& model) {
  Collector collector;
  model.apply([&](const std::string& prefix, const torch::nn::Module& module) {
    const bool is_sparse = has_sparse_gradient(module);
    if (dynamic_cast<const SyncBatchNormImpl*>(&module))
      collector.tensors.has_sync_batch_norm = true;
    for (const auto& item : module.named_parameters(/*recurse=*/false)) {
      collector.parameter(joined(prefix, item.key()), item.value(), is_sparse);
    }
    for (const auto& item : module.named_buffers(/*recurse=*/false))
      collector.buffer(joined(prefix, item.key()), item.value());
  });
  collector.tensors.name = model.name();
  return std::move(collector.tensors);
}

ModelTensors tensors_of(const torch::nn::Module& model, const std::string& part) {
  ModelTensors tensors = tensors_of(model);
  const auto is_of_another = [&](const auto& entry) {
    return !entry.first.starts_with(part + ".");
  };
  std::erase_if(tensors.parameters, is_of_another);
  std::erase_if(tensors.buffers, is_of_another);
  std::erase_if(tensors.aliases,
                [&](const auto& alias) { return !alias.second.starts_with(part + "."); });
  std::erase_if(tensors.sparse_gradients,
                [&](const auto& name) { return !name.starts_with(part + "."); });
  if (tensors.parameters.empty())
    throw TrainError(formatted("the model has no parameters below '{}'", part));
  return tensors;
}

ModelTensors tensors_of(const torch::jit::Module& model) {
  Collector collector;
  for (const auto& item : model.named_modules()) {
    const bool is_sparse = has_sparse_gradient(item.value);
    for (const auto& parameter : item.value.named_parameters(/*recurse=*/false)) {
      collector.parameter(joined(item.name, parameter.name), parameter.value, is_sparse);
    }
    for (const auto& buffer : item.value.named_buffers(/*recurse=*/false)) {
      collector.buffer(joined(item.name, buffer.name), buffer.value);
    }
  }
  collector.tensors.name = model.type()->name() ? model.type()->name()->name() : "Model";
  return std::move(collector.tensors);
}

}  // namespace torchbridge::train
