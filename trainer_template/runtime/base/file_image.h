// The bytes of a file in anonymous memory, where tensors can stay after the load.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace torchbridge::train {

// Page-aligned. Uses huge pages, into which direct reads are faster, but only if enough are free: otherwise the kernel
// compacts memory for seconds to make them.
class FileImage {
 public:
  explicit FileImage(std::uint64_t size);  // bytes, filled with zeros. Throws std::bad_alloc
  ~FileImage();
  FileImage(const FileImage&) = delete;
  FileImage& operator=(const FileImage&) = delete;

  std::uint64_t size() const { return size_; }
  // Writable up to the next multiple of kDirectAlignment after size().
  char* data() { return data_; }
  std::string_view bytes() const { return {data_, size_}; }

 private:
  std::uint64_t size_;
  char* data_ = nullptr;
};

// By the names of the files.
using FileImages = std::map<std::string, std::shared_ptr<FileImage>>;

}  // namespace torchbridge::train
