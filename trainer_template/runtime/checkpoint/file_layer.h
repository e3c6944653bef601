// The few file operations a checkpoint is made of, so that a test can cut the power between any two of them.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>

namespace torchbridge::train {

// Throws TrainError, which names the path and the system's reason. Folders are made 0700, files 0600; links are not followed.
class FileLayer {
 public:
  virtual ~FileLayer() = default;
  virtual void make_folder(const std::filesystem::path& path);
  // Makes a new file of these parts, one behind the other. Its content is on the disk when this returns, its name only
  // after sync_folder. It is an error when the file exists.
  virtual void write_synced(const std::filesystem::path& path, std::span<const std::string_view> parts);
  // The names in the folder are on the disk when this returns.
  virtual void sync_folder(const std::filesystem::path& path);
  virtual void rename(const std::filesystem::path& from, const std::filesystem::path& to);
  // A folder with all that is in it, or a file; nothing where there is none.
  virtual void remove(const std::filesystem::path& path);
};

FileLayer& real_files();

}  // namespace torchbridge::train
