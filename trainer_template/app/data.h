// The data that the model learns from: labelled images in IDX files.
#pragma once

#include <torchbridge/train/data/dataset.h>
#include <torchbridge/train/data/idx.h>

#include <filesystem>
#include <string>

// Pixels as float from 0 to 1, an image a row; labels as class numbers.
class Images : public torchbridge::train::Dataset {
 public:
  // `split` is "train" or "t10k", as in MNIST's file names.
  Images(const std::filesystem::path& folder, const std::string& split);

  std::int64_t size() const override { return images_.count; }
  std::int64_t features() const { return images_.pixels_per_image(); }
  std::int64_t rows() const { return images_.rows; }
  std::int64_t columns() const { return images_.columns; }
  std::int64_t classes() const { return images_.classes; }
  // Throws TrainError unless `test` has images of this size, and no classes that this set lacks.
  void check_fits(const Images& test, const std::filesystem::path& folder) const;
  torchbridge::train::Batch collate(std::span<const std::int64_t> indices) const override;

 private:
  torchbridge::train::IdxImages images_;
};
