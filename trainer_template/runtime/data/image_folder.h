// A folder of labelled images: one folder a class, as torchvision's ImageFolder reads it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "trainer_template/runtime/data/dataset.h"

namespace torchbridge::train {

struct ImageFolderOptions {
  std::int64_t height = 224, width = 224;  // images of another size are resized: bilinear, with antialiasing
};

// inputs: [samples, 3, height, width] float from 0 to 1; targets: [samples] int64, the class. Classes are numbered in
// the alphabetical order of their folders' names, images in that of their paths. Images are decoded in
// collate().
class ImageFolder : public Dataset {
 public:
  // Reads the header of every file. Throws TrainError, which names the file or folder: no classes, a class without
  // images, a file that is not .png, .jpg or .jpeg or does not begin like one. Names that begin with a dot are ignored.
  ImageFolder(const std::filesystem::path& folder, const ImageFolderOptions& options);

  std::int64_t size() const override { return std::ssize(images_); }
  const std::vector<std::string>& classes() const { return classes_; }
  Batch collate(std::span<const std::int64_t> indices) const override;
  // Names and sizes of the files: to read them all would take too long.
  std::vector<std::span<const std::byte>> contents() const override { return {std::as_bytes(std::span(listing_))}; }

 private:
  struct Labelled {
    std::filesystem::path path;
    std::int64_t label = 0;
  };

  void read_class(const std::filesystem::path& folder);

  const ImageFolderOptions options_;
  std::vector<std::string> classes_;
  std::vector<Labelled> images_;
  std::string listing_;  // "cat/7.png 1234\n" ...
};

}  // namespace torchbridge::train
