// The file operations that write a checkpoint, as an interface: tests replace it to simulate a
// power cut, a full disk or a late directory entry between any two operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace torchbridge::train {

// Alignment of direct I/O, in memory and in the file. Direct I/O bypasses the page cache and leaves
// memory and processor time to the training.
inline constexpr std::size_t kDirectAlignment = 4096;

// A file that is being written. All but the destructor throw TrainError, which names the path and
// the system's reason.
class OutputFile {
 public:
  virtual ~OutputFile() = default;  // closes the file and ignores errors
  // `bytes` must not change until this returns. Any thread, but one at a time.
  virtual void write_at(std::uint64_t offset, std::string_view bytes) = 0;
  // All bytes written through this object are on the disk when this returns; the file's name only
  // after sync_folder(). Nothing happens on a file system that does not support it
  // (base/file_support.h); the same for a folder.
  virtual void sync() = 0;
  // Network file systems may report a failed write only here. The last call.
  virtual void close() = 0;
};

// Throws TrainError, which names the path and the system's reason. The umask of the process decides
// about rights; links are not followed, but by sync_folder(). Any thread, as long as no two are at
// one path.
class FileLayer {
 public:
  enum class Owner {
    kOne,      // it is an error when the file exists
    kSeveral,  // other ranks write other parts of the file: the first one creates it
  };

  virtual ~FileLayer() = default;
  // An existing folder is no error.
  virtual void make_folder(const std::filesystem::path& path);
  virtual std::unique_ptr<OutputFile> open(const std::filesystem::path& path, Owner owner);
  // The names in the folder are on the disk when this returns.
  virtual void sync_folder(const std::filesystem::path& path);
  // Replaces an existing file or link, but not a folder.
  virtual void rename(const std::filesystem::path& from, const std::filesystem::path& to);
  // Creates a symbolic link; false if the file system does not support links.
  virtual bool link(const std::filesystem::path& target, const std::filesystem::path& path);
  // Removes a file, or a folder with its content. A missing path is no error.
  virtual void remove(const std::filesystem::path& path);

  // remove(), but returns an error as text instead of throwing; empty if there was none.
  std::string try_remove(const std::filesystem::path& path);
  // Writes the parts one after the other as a new file, and syncs it.
  void write_synced(const std::filesystem::path& path, std::span<const std::string_view> parts);
};

FileLayer& real_files();

}  // namespace torchbridge::train
