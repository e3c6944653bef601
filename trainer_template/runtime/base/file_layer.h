// The few file operations a checkpoint is made of, so that a test can cut the power, fill the disk or delay a name
// between any two of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

namespace torchbridge::train {

// Bytes that begin at a multiple of this, in memory and in the file, may go to the disk, or come from it, without a
// copy in the page cache: that costs neither memory nor processor time, which training needs.
inline constexpr std::size_t kDirectAlignment = 4096;
// Whether the open file is on a file system of local disks. Those of a network do better behind the caller's back than
// block by block.
bool takes_direct_io(int descriptor);

// A file that is being written. All but the destructor throw TrainError, which names the path and the system's reason.
class OutputFile {
 public:
  virtual ~OutputFile() = default;  // closes it without a word
  // The bytes must stay as they are until this returns. Any thread, but one at a time.
  virtual void write_at(std::uint64_t offset, std::string_view bytes) = 0;
  // What was written through this object is on the disk when this returns; the file's name only after sync_folder.
  virtual void sync() = 0;
  // Network file systems may report a failed write only here. Nothing may follow.
  virtual void close() = 0;
};

// Throws TrainError, which names the path and the system's reason. Folders are made 0700, files 0600; links are not
// followed. Any thread, as long as no two are at one path.
class FileLayer {
 public:
  enum class Owner {
    kOne,      // it is an error when the file exists
    kSeveral,  // other ranks write other parts of it: whoever comes first makes it
  };

  virtual ~FileLayer() = default;
  // One that is there already will do.
  virtual void make_folder(const std::filesystem::path& path);
  virtual std::unique_ptr<OutputFile> open(const std::filesystem::path& path, Owner owner);
  // The names in the folder are on the disk when this returns.
  virtual void sync_folder(const std::filesystem::path& path);
  // A file takes the place of a file, and a link that of a link; a folder is not replaced.
  virtual void rename(const std::filesystem::path& from, const std::filesystem::path& to);
  // Makes a symbolic link; false where the file system has none.
  virtual bool link(const std::filesystem::path& target, const std::filesystem::path& path);
  // A folder with all that is in it, or a file; nothing where there is none.
  virtual void remove(const std::filesystem::path& path);

  // Makes a new file of these parts, one behind the other, and syncs it.
  void write_synced(const std::filesystem::path& path, std::span<const std::string_view> parts);
};

FileLayer& real_files();

}  // namespace torchbridge::train
