// A file of a checkpoint that is read from one end to the other.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>

#include "trainer_template/runtime/base/file_image.h"

namespace torchbridge::train {

// A regular file, open for reading. It is read, not mapped: a block that the disk cannot deliver is then an error, and
// no SIGBUS. One thread.
class ReadFile {
 public:
  enum class Way {
    kCached,
    kDirect  // past the page cache, on file systems of local disks: for a file that one process reads, once
  };

  // Throws TrainError, which names the path, where it is not the file's fault that it cannot be opened: too many are
  // open, or it is another user's.
  explicit ReadFile(const std::filesystem::path& path, Way way = Way::kCached);
  ~ReadFile();
  ReadFile(const ReadFile&) = delete;
  ReadFile& operator=(const ReadFile&) = delete;

  const char* error() const { return error_; }  // why it cannot be read; null: it can
  std::uint64_t size() const { return size_; }

  // Hands [begin, end) on, block by block, until take() says false. False where the disk does not deliver them.
  using Take = std::function<bool(std::string_view)>;
  bool read(std::uint64_t begin, std::uint64_t end, const Take& take) const;
  // The same, and puts them into their place in the image, which is as large as the file. Others may write what is
  // around them.
  bool read_into(FileImage& image, std::uint64_t begin, std::uint64_t end, const Take& take) const;

 private:
  bool fill(FileImage& image, std::uint64_t begin, std::uint64_t end) const;
  bool fill_cached(char* to, std::uint64_t begin, std::uint64_t end) const;
  bool fill_direct(FileImage& image, std::uint64_t begin, std::uint64_t end) const;

  int descriptor_, direct_ = -1;
  const char* error_ = nullptr;
  std::uint64_t size_ = 0;
};

}  // namespace torchbridge::train
