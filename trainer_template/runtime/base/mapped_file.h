// A file mapped into memory: its bytes are read from the disk when they are accessed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

namespace torchbridge::train {

enum class Links { kFollowed, kRejected };

// Uses address space, not memory: the file may be larger than the memory. It must not shrink while it is mapped: access
// to bytes that no longer exist ends the process with SIGBUS. Any thread.
class MappedFile {
 public:
  // Throws TrainError, which names the file, unless it is a readable regular file that is not empty.
  explicit MappedFile(const std::filesystem::path& path, Links links = Links::kFollowed);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  std::span<const std::uint8_t> bytes() const { return bytes_; }

 private:
  std::span<const std::uint8_t> bytes_;
};

}  // namespace torchbridge::train
