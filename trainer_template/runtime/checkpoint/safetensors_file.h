// A safetensors file, mapped: its header, and the bytes of each tensor where they lie. Needs no libtorch.
#pragma once

#include <filesystem>
#include <string_view>

#include <torchbridge/train/checkpoint/safetensors_header.h>
#include <torchbridge/train/data/mapped_file.h>

namespace torchbridge::train {

// May be read from any thread. What is not looked at is not read from the disk.
class SafetensorsFile {
 public:
  // Throws TrainError, which names the file and what is wrong with it: missing, cut off, or anything that parse_header refuses.
  explicit SafetensorsFile(const std::filesystem::path& path, Links links = Links::kFollowed);

  const SafetensorsHeader& header() const { return header_; }
  std::string_view bytes(const TensorEntry& entry) const;  // REQUIRES: an entry of header()

 private:
  MappedFile file_;
  SafetensorsHeader header_;
};

}  // namespace torchbridge::train
