#include "data.h"

#include <torchbridge/train/data/pixels.h>
#include <torchbridge/train/errors.h>

using torchbridge::train::Batch;
using torchbridge::train::TrainError;

Images::Images(const std::filesystem::path& folder, const std::string& split)
    : images_(torchbridge::train::read_idx_images(folder, split)) {}

void Images::check_fits(const Images& test, const std::filesystem::path& folder) const {
  const auto differ = [&](const std::string& what, std::int64_t here, std::int64_t there) {
    throw TrainError("data folder '" + folder.string() + "': training and test images do not fit together: " + std::to_string(here) +
                     " and " + std::to_string(there) + " " + what + "; give another --data");
  };
  if (test.features() != features()) differ("pixels an image", features(), test.features());
  if (test.classes() > classes()) differ("classes", classes(), test.classes());
}

Batch Images::collate(std::span<const std::int64_t> indices) const {
  Batch batch;
  const auto count = std::ssize(indices);
  batch.inputs = torchbridge::train::batch_tensor({count, features()}, at::kFloat);
  batch.targets = torchbridge::train::batch_tensor({count}, at::kLong);
  auto* input = batch.inputs.mutable_data_ptr<float>();
  auto* target = batch.targets.mutable_data_ptr<std::int64_t>();
  for (std::int64_t index : indices) {
    const std::uint8_t* pixels = images_.pixels.data() + index * features();
    torchbridge::train::unit_floats({pixels, static_cast<std::size_t>(features())}, input);
    input += features();
    *target++ = images_.labels[index];
  }
  return batch;
}
