// Sequential reads of a checkpoint file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>

#include "trainer_template/runtime/formats/file_image.h"

namespace torchbridge::train {

// A regular file, open for reading. It is read, not mapped, so that a read error of the disk is
// reported instead of raising SIGBUS. One thread.
class ReadFile {
 public:
  // Throws TrainError, which names the path, if the file cannot be opened for a reason outside the
  // file: too many open files, or missing permissions. For a fault of the file see error().
  explicit ReadFile(const std::filesystem::path& path);
  ~ReadFile();
  ReadFile(const ReadFile&) = delete;
  ReadFile& operator=(const ReadFile&) = delete;

  const char* error() const { return error_; }  // why the file cannot be read; null if it can
  std::uint64_t size() const { return size_; }

  // Passes [begin, end) to take(), block by block, until take() returns false. False after a read
  // error.
  using Take = std::function<bool(std::string_view)>;
  bool read(std::uint64_t begin, std::uint64_t end, const Take& take) const;
  // The same, and stores the bytes at their offset in the image, which is as large as the file.
  // Other threads may write other ranges of the image at the same time.
  bool read_into(FileImage& image, std::uint64_t begin, std::uint64_t end, const Take& take) const;

 private:
  int descriptor_;
  const char* error_ = nullptr;
  std::uint64_t size_ = 0;
};

}  // namespace torchbridge::train
