// A data set of one's own, as docs/use/data.md shows it.
#pragma once

#include <torchbridge/data.h>

// begin
class Squares : public torchbridge::train::Dataset {
 public:
  std::int64_t size() const override { return 1000; }
  torchbridge::train::Batch collate(std::span<const std::int64_t> indices) const override {
    torchbridge::train::Batch batch{
        torchbridge::train::batch_tensor({std::ssize(indices), 1}, at::kFloat),
        torchbridge::train::batch_tensor({std::ssize(indices), 1}, at::kFloat)};
    for (std::int64_t i = 0; i < std::ssize(indices); ++i) {
      batch.inputs.mutable_data_ptr<float>()[i] = static_cast<float>(indices[i]);
      batch.targets.mutable_data_ptr<float>()[i] = static_cast<float>(indices[i] * indices[i]);
    }
    return batch;
  }
};
// end
