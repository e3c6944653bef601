#include <torchbridge/data.h>

#include "trainer_template/runtime/formats/pixels.h"

namespace torchbridge::train {

Batch IdxDataset::collate(std::span<const std::int64_t> indices) const {
  Batch batch;
  const std::int64_t pixels = images_.pixels_per_image();
  batch.inputs = batch_tensor({std::ssize(indices), pixels}, at::kFloat);
  batch.targets = batch_tensor({std::ssize(indices)}, at::kLong);
  auto* input = batch.inputs.mutable_data_ptr<float>();
  auto* target = batch.targets.mutable_data_ptr<std::int64_t>();
  for (const std::int64_t index : indices) {
    unit_floats({images_.pixels.data() + index * pixels, static_cast<std::size_t>(pixels)}, input);
    input += pixels;
    *target++ = images_.labels[index];
  }
  return batch;
}

}  // namespace torchbridge::train
