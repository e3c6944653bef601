// Labelled images in MNIST's IDX files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

namespace torchbridge::train {

struct IdxImages {
  std::int64_t count = 0, rows = 0, columns = 0;
  std::vector<std::uint8_t> pixels;  // image by image, row by row
  std::vector<std::uint8_t> labels;  // one an image
  int classes = 0;                   // highest label + 1

  std::int64_t pixels_per_image() const { return rows * columns; }
};

// Reads `SPLIT-images-idx3-ubyte` and `SPLIT-labels-idx1-ubyte` in `folder`, also spelled `SPLIT-images.idx3-ubyte`,
// or with `.gz` appended; SPLIT is "train" or "t10k". Throws TrainError, which names the file and the error: a missing
// file, another magic number, no images, a size that does not match the header, unequal numbers of images and labels.
IdxImages read_idx_images(const std::filesystem::path& folder, std::string_view split);

}  // namespace torchbridge::train
