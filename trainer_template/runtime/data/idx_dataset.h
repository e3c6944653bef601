// MNIST's files as a data set.
#pragma once

#include <filesystem>
#include <string>

#include "trainer_template/runtime/data/dataset.h"
#include "trainer_template/runtime/formats/idx.h"

namespace torchbridge::train {

// inputs: [samples, rows * columns] float from 0 to 1; targets: [samples] int64, the class.
class IdxDataset : public Dataset {
 public:
  // `split` is "train" or "t10k", as in the files' names. Throws TrainError, which names the file.
  IdxDataset(const std::filesystem::path& folder, const std::string& split) : images_(read_idx_images(folder, split)) {}

  const IdxImages& images() const { return images_; }
  std::int64_t size() const override { return images_.count; }
  Batch collate(std::span<const std::int64_t> indices) const override;
  std::vector<std::span<const std::byte>> contents() const override {
    return {std::as_bytes(std::span(images_.pixels)), std::as_bytes(std::span(images_.labels))};
  }

 private:
  IdxImages images_;
};

}  // namespace torchbridge::train
