// A file as bytes in memory that are read from the disk when they are looked at.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

namespace torchbridge::train {

enum class Links { kFollowed, kRejected };

// Costs address space, not memory: files may be larger than the machine's. The file must keep its size while it is
// mapped; a process that looks at bytes which are no longer there ends by SIGBUS. May be read from any thread.
class MappedFile {
 public:
  // Throws TrainError, which names the file, unless it is a regular file that can be read and is not empty.
  explicit MappedFile(const std::filesystem::path& path, Links links = Links::kFollowed);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  std::span<const std::uint8_t> bytes() const { return bytes_; }

 private:
  std::span<const std::uint8_t> bytes_;
};

}  // namespace torchbridge::train
