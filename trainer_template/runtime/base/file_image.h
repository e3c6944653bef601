// A file's bytes in memory of their own: what was read can stay where it is.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace torchbridge::train {

// Begins at a page. In huge pages where they are free: a disk fills them faster. Where they are not, the system would
// move others for seconds to make some.
class FileImage {
 public:
  explicit FileImage(std::uint64_t size);  // in bytes, of zeros. Throws std::bad_alloc
  ~FileImage();
  FileImage(const FileImage&) = delete;
  FileImage& operator=(const FileImage&) = delete;

  std::uint64_t size() const { return size_; }
  // Good up to the next multiple of kDirectAlignment.
  char* data() { return data_; }
  std::string_view bytes() const { return {data_, size_}; }

 private:
  std::uint64_t size_;
  char* data_ = nullptr;
};

// By the names of the files.
using FileImages = std::map<std::string, std::shared_ptr<FileImage>>;

}  // namespace torchbridge::train
