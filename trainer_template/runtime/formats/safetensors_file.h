// A safetensors file, mapped or in memory: its header, and the bytes of each tensor where they lie. Needs no libtorch.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "trainer_template/runtime/base/file_image.h"
#include "trainer_template/runtime/formats/safetensors_header.h"
#include "trainer_template/runtime/base/mapped_file.h"

namespace torchbridge::train {

// May be read from any thread. What is not looked at is not read from the disk.
class SafetensorsFile {
 public:
  // Throws TrainError, which names the file and what is wrong with it: missing, cut off, or anything that parse_header
  // refuses.
  explicit SafetensorsFile(const std::filesystem::path& path, Links links = Links::kFollowed);

  // Of bytes that were read from `path` before.
  SafetensorsFile(std::shared_ptr<FileImage> image, const std::filesystem::path& path);

  const SafetensorsHeader& header() const { return header_; }
  std::string_view bytes(const TensorEntry& entry) const;  // REQUIRES: an entry of header()

 private:
  std::shared_ptr<const void> owner_;  // of the bytes
  std::string_view bytes_;
  SafetensorsHeader header_;
};

}  // namespace torchbridge::train
