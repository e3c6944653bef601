// For the data sets of a language model, whose samples are windows of consecutive tokens.
#pragma once

#include <cstdint>
#include <span>

#include <torchbridge/data.h>

namespace torchbridge::train {

// inputs and targets: [samples, length] int64. `copy(index, input, target)` writes the window of a
// sample, and the window one token further on.
template <class Copy>
Batch collate_windows(std::span<const std::int64_t> indices, std::int64_t length, Copy&& copy) {
  Batch batch;
  batch.inputs = batch_tensor({std::ssize(indices), length}, at::kLong);
  batch.targets = batch_tensor({std::ssize(indices), length}, at::kLong);
  auto* input = batch.inputs.mutable_data_ptr<std::int64_t>();
  auto* target = batch.targets.mutable_data_ptr<std::int64_t>();
  for (const std::int64_t index : indices) {
    copy(index, input, target);
    input += length;
    target += length;
  }
  return batch;
}

}  // namespace torchbridge::train
