// The bytes of a file in memory, where tensors can stay after the load.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace torchbridge::train {

class FileImage {
 public:
  // Bytes, not initialized. Throws std::bad_alloc.
  explicit FileImage(std::uint64_t size)
      : size_(size), data_(std::make_unique_for_overwrite<char[]>(size)) {}

  std::uint64_t size() const { return size_; }
  char* data() { return data_.get(); }
  std::string_view bytes() const { return {data_.get(), size_}; }

 private:
  std::uint64_t size_;
  std::unique_ptr<char[]> data_;
};

// By the names of the files.
using FileImages = std::map<std::string, std::shared_ptr<FileImage>>;

}  // namespace torchbridge::train
