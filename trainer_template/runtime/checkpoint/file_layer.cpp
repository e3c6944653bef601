#include <torchbridge/train/checkpoint/file_layer.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <torchbridge/train/errors.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace torchbridge::train {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& verb, const fs::path& path, int error) {
  throw TrainError("cannot " + verb + " '" + path.string() + "': " + std::strerror(error));
}

class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags) : number_(::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0600)) {
    if (number_ < 0) fail("open", path, errno);
  }
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int number() const { return number_; }
  // Network file systems may report a failed write only here.
  void close(const fs::path& path) {
    if (::close(std::exchange(number_, -1)) != 0) fail("write", path, errno);
  }

 private:
  int number_;
};

void write_all(int descriptor, std::string_view bytes, const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), std::min<std::size_t>(bytes.size(), 1 << 30));
    if (written < 0 && errno != EINTR) fail("write", path, errno);
    if (written > 0) bytes.remove_prefix(written);
  }
}

}  // namespace

void FileLayer::make_folder(const fs::path& path) {
  if (::mkdir(path.c_str(), 0700) != 0) fail("make folder", path, errno);
}

void FileLayer::write_synced(const fs::path& path, std::span<const std::string_view> parts) {
  Descriptor file(path, O_WRONLY | O_CREAT | O_EXCL);
  for (std::string_view part : parts) write_all(file.number(), part, path);
  if (::fsync(file.number()) != 0) fail("sync", path, errno);
  file.close(path);
}

void FileLayer::sync_folder(const fs::path& path) {
  Descriptor folder(path, O_RDONLY | O_DIRECTORY);
  // Some file systems cannot sync a folder and say EINVAL; there is nothing else to try.
  if (::fsync(folder.number()) != 0 && errno != EINVAL) fail("sync", path, errno);
}

void FileLayer::rename(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail("rename to", to, errno);
}

void FileLayer::remove(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) fail("remove", path, error.value());
}

FileLayer& real_files() {
  static FileLayer files;
  return files;
}

}  // namespace torchbridge::train
