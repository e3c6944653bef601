// A safetensors file, mapped or in memory: its header, and the bytes of each tensor without a copy.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include <torchbridge/formats.h>

#include "trainer_template/runtime/formats/file_image.h"
#include "trainer_template/runtime/formats/safetensors_header.h"

namespace torchbridge::train {

// Any thread. A mapped file is read from the disk only where its bytes are accessed.
class SafetensorsFile {
 public:
  // Throws TrainError, which names the file and the error: missing, truncated, or an error of
  // parse_header().
  explicit SafetensorsFile(const std::filesystem::path& path, Links links = Links::kFollowed);

  // From bytes that were read from `path`, which errors name.
  SafetensorsFile(std::shared_ptr<FileImage> image, const std::filesystem::path& path);

  const SafetensorsHeader& header() const { return header_; }
  std::string_view bytes(const TensorEntry& entry) const;  // REQUIRES: an entry of header()

 private:
  std::shared_ptr<const void> owner_;  // of the bytes
  std::string_view bytes_;
  SafetensorsHeader header_;
};

}  // namespace torchbridge::train
