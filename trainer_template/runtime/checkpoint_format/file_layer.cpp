#include "trainer_template/runtime/checkpoint_format/file_layer.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include <torchbridge/errors.h>

#include "bridge/base/message_text.h"
#include "trainer_template/runtime/base/failpoint.h"
#include "trainer_template/runtime/base/file_support.h"

namespace torchbridge::train {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& verb, const fs::path& path, int error) {
  throw TrainError(formatted("cannot {} '{}': {}", verb, path.string(), std::strerror(error)));
}

// Whether the open file is on ext4 or XFS. Network file systems are faster with buffered writes
// than with direct ones.
bool takes_direct_io(int descriptor) {
  struct statfs system {};
  return ::fstatfs(descriptor, &system) == 0 &&
         (system.f_type == EXT4_SUPER_MAGIC || system.f_type == XFS_SUPER_MAGIC);
}

class RealFile : public OutputFile {
 public:
  RealFile(const fs::path& path, int flags)
      : path_(path), number_(::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0666)) {
    if (number_ < 0) fail("open", path_, errno);
    takes_direct_ = takes_direct_io(number_);
  }
  ~RealFile() override {
    if (number_ >= 0) ::close(number_);
  }
  RealFile(const RealFile&) = delete;
  RealFile& operator=(const RealFile&) = delete;

  void write_at(std::uint64_t offset, std::string_view bytes) override {
    failpoint("write");
    const bool is_aligned = offset % kDirectAlignment == 0 &&
                            reinterpret_cast<std::uintptr_t>(bytes.data()) % kDirectAlignment == 0;
    const std::size_t direct = is_aligned ? bytes.size() / kDirectAlignment * kDirectAlignment : 0;
    const std::size_t written =
        direct > 0 && set_mode(kDirect) ? write_some(offset, bytes.substr(0, direct)) : 0;
    offset += written;
    bytes.remove_prefix(written);
    if (bytes.empty()) return;
    set_mode(kCached);
    write_some(offset, bytes);
    // Starts writeback now instead of at the sync. An error is ignored: the sync writes the data
    // anyway.
    ::sync_file_range(number_, static_cast<off_t>(offset), static_cast<off_t>(bytes.size()),
                      SYNC_FILE_RANGE_WRITE);
  }
  void sync() override {
    failpoint("fsync");
    if (const int error = sync_descriptor(number_); error != 0) fail("sync", path_, error);
  }
  void close() override {
    if (::close(std::exchange(number_, -1)) != 0) fail("write", path_, errno);
  }

 private:
  enum WriteMode { kCached, kDirect };

  // Switches the descriptor; false if it cannot write directly. Writing through the page cache is
  // always possible.
  bool set_mode(WriteMode mode) {
    if (mode == mode_) return true;
    if (mode == kDirect && !takes_direct_) return false;
    const int flags = ::fcntl(number_, F_GETFL);
    if (flags < 0 ||
        ::fcntl(number_, F_SETFL, mode == kDirect ? flags | O_DIRECT : flags & ~O_DIRECT) != 0) {
      if (mode == kCached) fail("write", path_, errno);
      return takes_direct_ = false;
    }
    mode_ = mode;
    return true;
  }

  // The number of bytes written: all, or fewer if the file system rejects the alignment of a direct
  // write (EINVAL).
  std::size_t write_some(std::uint64_t offset, std::string_view bytes) {
    std::size_t done = 0;
    while (done < bytes.size()) {
      const std::size_t size = std::min<std::size_t>(bytes.size() - done, std::size_t{1} << 30);
      const ssize_t written =
          ::pwrite(number_, bytes.data() + done, size, static_cast<off_t>(offset + done));
      if (written < 0 && errno == EINVAL && mode_ == kDirect) {
        takes_direct_ = false;
        break;
      }
      if (written < 0 && errno != EINTR) fail("write", path_, errno);
      if (written > 0) done += static_cast<std::size_t>(written);
    }
    return done;
  }

  const fs::path path_;
  int number_;
  bool takes_direct_ = false;
  WriteMode mode_ = kCached;
};

}  // namespace

void FileLayer::make_folder(const fs::path& path) {
  if (::mkdir(path.c_str(), 0777) == 0) return;
  const int error = errno;
  struct stat found {};
  const bool is_there =
      error == EEXIST && ::lstat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
  if (!is_there) fail("make folder", path, error);
}

std::unique_ptr<OutputFile> FileLayer::open(const fs::path& path, Owner owner) {
  return std::make_unique<RealFile>(path, O_WRONLY | O_CREAT | (owner == Owner::kOne ? O_EXCL : 0));
}

void FileLayer::sync_folder(const fs::path& path) {
  failpoint("directory-fsync");
  // The folder of all checkpoints may be a link, and a sync changes nothing at its target.
  const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) fail("open", path, errno);
  const int error = sync_descriptor(folder);
  ::close(folder);
  if (error != 0) fail("sync", path, error);
}

void FileLayer::rename(const fs::path& from, const fs::path& to) {
  failpoint("rename");
  if (::rename(from.c_str(), to.c_str()) != 0) fail("rename to", to, errno);
}

bool FileLayer::link(const fs::path& target, const fs::path& path) {
  const int error = ::symlink(target.c_str(), path.c_str()) == 0 ? 0 : errno;
  struct stat parent {};
  if (::stat(path.parent_path().c_str(), &parent) == 0 &&
      is_unsupported(FileOperation::kLink, parent.st_dev, error))
    return false;
  if (error != 0) fail("make link", path, error);
  return true;
}

void FileLayer::remove(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) fail("remove", path, error.value());
}

std::string FileLayer::try_remove(const fs::path& path) try {
  remove(path);
  return {};
} catch (const TrainError& error) {
  return error.what();
}

void FileLayer::write_synced(const fs::path& path, std::span<const std::string_view> parts) {
  const auto file = open(path, Owner::kOne);
  std::uint64_t offset = 0;
  for (const std::string_view part : parts) {
    file->write_at(offset, part);
    offset += part.size();
  }
  file->sync();
  file->close();
}

FileLayer& real_files() {
  static FileLayer files;
  return files;
}

}  // namespace torchbridge::train
