#include "trainer_template/runtime/data/dataset.h"

#include <utility>

#include <ATen/ops/empty.h>

#include "trainer_template/runtime/tensors/pinned_memory.h"

namespace torchbridge::train {
namespace {

thread_local bool pinned_batches = false;

}  // namespace

at::Tensor batch_tensor(at::IntArrayRef sizes, at::ScalarType type) {
  return pinned_batches ? empty_pinned(sizes, type) : at::empty(sizes, type);
}

PinnedBatches::PinnedBatches(bool pinned) : before_(std::exchange(pinned_batches, pinned)) {}
PinnedBatches::~PinnedBatches() { pinned_batches = before_; }

}  // namespace torchbridge::train
