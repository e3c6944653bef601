#include "trainer_template/runtime/checkpoint_format/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include <torchbridge/errors.h>

#include "bridge/base/message_text.h"
namespace torchbridge::train {
namespace {

constexpr std::uint64_t kPiece = 1 << 20;
constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;

// False at the end of the file and after a read error.
bool fill(int descriptor, char* to, std::uint64_t begin, std::uint64_t end) {
  while (begin < end) {
    const ssize_t count = pread(descriptor, to, end - begin, static_cast<off_t>(begin));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    to += count;
    begin += static_cast<std::uint64_t>(count);
  }
  return true;
}

// Whether this error of open() is the file's fault, not that of the process or the system.
bool is_file_fault(int error) {
  constexpr std::array kSystemErrors = {EMFILE, ENFILE, ENOMEM, EACCES, EPERM, EINTR};
  return std::ranges::count(kSystemErrors, error) == 0;
}

}  // namespace

ReadFile::ReadFile(const std::filesystem::path& path) : descriptor_(open(path.c_str(), kFlags)) {
  struct stat status {};
  if (descriptor_ < 0) {
    if (!is_file_fault(errno))
      throw TrainError(formatted("cannot open '{}': {}", path.string(), std::strerror(errno)));
    error_ = errno == ELOOP ? "is a link, which is not followed" : "is missing or cannot be read";
  } else if (fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    error_ = "is not a regular file";
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

ReadFile::~ReadFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

bool ReadFile::read(std::uint64_t begin, std::uint64_t end, const Take& take) const {
  std::vector<char> block(std::min(kPiece, end - begin));
  for (std::uint64_t stop = begin; begin < end; begin = stop) {
    stop = std::min(end, begin + kPiece);
    if (!fill(descriptor_, block.data(), begin, stop)) return false;
    if (!take({block.data(), stop - begin})) return true;
  }
  return true;
}

bool ReadFile::read_into(FileImage& image, std::uint64_t begin, std::uint64_t end,
                         const Take& take) const {
  for (std::uint64_t stop = begin; begin < end; begin = stop) {
    stop = std::min(end, begin + kPiece);
    if (!fill(descriptor_, image.data() + begin, begin, stop)) return false;
    if (!take({image.data() + begin, stop - begin})) return true;
  }
  return true;
}

}  // namespace torchbridge::train
