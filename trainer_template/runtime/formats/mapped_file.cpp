#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include <torchbridge/errors.h>
#include <torchbridge/formats.h>

namespace torchbridge::train {
namespace {

[[noreturn]] void fail_to_map(const std::filesystem::path& path, const std::string& reason) {
  throw TrainError(path.string() + ": " + reason);
}

std::string last_error() { return std::generic_category().message(errno); }

std::span<const std::uint8_t> map(const std::filesystem::path& path, int descriptor) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0) fail_to_map(path, "cannot be read: " + last_error());
  if (!S_ISREG(status.st_mode)) fail_to_map(path, "is not a regular file");
  if (status.st_size == 0) fail_to_map(path, "is empty");
  const auto size = static_cast<std::size_t>(status.st_size);
  void* address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (address == MAP_FAILED) fail_to_map(path, "cannot be mapped: " + last_error());
  return {static_cast<const std::uint8_t*>(address), size};
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path, Links links) {
  // O_NONBLOCK: opening a pipe without a writer must not block.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK |
                                                (links == Links::kRejected ? O_NOFOLLOW : 0));
  if (descriptor < 0 && errno == ELOOP) fail_to_map(path, "is a link, which is not followed");
  if (descriptor < 0) fail_to_map(path, "cannot be opened: " + last_error());
  try {
    bytes_ = map(path, descriptor);
  } catch (...) {
    close(descriptor);
    throw;
  }
  close(descriptor);
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::uint8_t*>(bytes_.data()), bytes_.size());
}

}  // namespace torchbridge::train
