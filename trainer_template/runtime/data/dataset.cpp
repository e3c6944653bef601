#include <utility>

#include <ATen/ops/empty.h>
#include <torchbridge/data.h>
#include <torchbridge/errors.h>

#include "bridge/base/message_text.h"
#include "trainer_template/runtime/data/pinned_batches.h"
#include "trainer_template/runtime/tensors/pinned_memory.h"

namespace torchbridge::train {
namespace {

thread_local bool pinned_batches = false;

}  // namespace

const at::Tensor& tensor_named(const std::string& name,
                               const std::map<std::string, at::Tensor>& named,
                               const std::string& what) {
  if (const auto found = named.find(name); found != named.end()) return found->second;
  std::string others;
  for (const auto& [other, tensor] : named)
    others += (others.empty() ? ", only '" : "', '") + other;
  throw TrainError(
      formatted("{} has no tensor '{}'{}{}", what, name, others, others.empty() ? "" : "'"));
}

const at::Tensor& Batch::operator[](const std::string& name) const {
  return tensor_named(name, named, "the batch");
}

std::vector<at::Tensor*> Batch::tensors() {
  std::vector<at::Tensor*> all = {&inputs, &targets};
  for (auto& [name, tensor] : named) all.push_back(&tensor);
  std::erase_if(all, [](const at::Tensor* tensor) { return !tensor->defined(); });
  return all;
}

at::Tensor batch_tensor(at::IntArrayRef sizes, at::ScalarType type) {
  return pinned_batches ? empty_pinned(sizes, type) : at::empty(sizes, type);
}

PinnedBatches::PinnedBatches(bool pinned) : before_(std::exchange(pinned_batches, pinned)) {}
PinnedBatches::~PinnedBatches() { pinned_batches = before_; }

}  // namespace torchbridge::train
