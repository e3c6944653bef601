#include "trainer_template/runtime/base/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "trainer_template/runtime/base/errors.h"
#include "trainer_template/runtime/base/file_layer.h"

namespace torchbridge::train {
namespace {

constexpr std::uint64_t kBlock = 1 << 20, kLargeBlock = 4 << 20;  // kLargeBlock: the size of one direct read
constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;

std::uint64_t rounded_down(std::uint64_t offset) { return offset / kDirectAlignment * kDirectAlignment; }
std::uint64_t rounded_up(std::uint64_t offset) { return rounded_down(offset + kDirectAlignment - 1); }

// Reads `size` bytes from `begin` on. Returns fewer at the end of the file or after a read error.
std::uint64_t read_some(int descriptor, char* to, std::uint64_t begin, std::uint64_t size) {
  std::uint64_t done = 0;
  while (done < size) {
    const ssize_t count = pread(descriptor, to + done, size - done, static_cast<off_t>(begin + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += static_cast<std::uint64_t>(count);
  }
  return done;
}

// Whether this error of open() is the file's fault, not that of the process or the system.
bool is_file_fault(int error) {
  constexpr std::array kSystemErrors = {EMFILE, ENFILE, ENOMEM, EACCES, EPERM, EINTR};
  return std::ranges::count(kSystemErrors, error) == 0;
}

}  // namespace

ReadFile::ReadFile(const std::filesystem::path& path, ReadMode mode) : descriptor_(open(path.c_str(), kFlags)) {
  struct stat status {};
  if (descriptor_ < 0) {
    if (!is_file_fault(errno)) throw TrainError("cannot open '" + path.string() + "': " + std::strerror(errno));
    error_ = errno == ELOOP ? "is a link, which is not followed" : "is missing or cannot be read";
  } else if (fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    error_ = "is not a regular file";
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
  if (!error_ && mode == ReadMode::kDirect && takes_direct_io(descriptor_))
    direct_ = open(path.c_str(), kFlags | O_DIRECT);
}

ReadFile::~ReadFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (direct_ >= 0) close(direct_);
}

bool ReadFile::read(std::uint64_t begin, std::uint64_t end, const Take& take) const {
  std::vector<char> block(std::min(kBlock, end - begin));
  for (std::uint64_t stop = begin; begin < end; begin = stop) {
    stop = std::min(end, begin + block.size());
    if (!fill_cached(block.data(), begin, stop)) return false;
    if (!take({block.data(), stop - begin})) return true;
  }
  return true;
}

bool ReadFile::read_into(FileImage& image, std::uint64_t begin, std::uint64_t end, const Take& take) const {
  for (std::uint64_t stop = begin; begin < end; begin = stop) {
    stop = std::min(end, (begin / kLargeBlock + 1) * kLargeBlock);
    if (!fill(image, begin, stop)) return false;
    if (!take({image.data() + begin, stop - begin})) return true;
  }
  return true;
}

bool ReadFile::fill(FileImage& image, std::uint64_t begin, std::uint64_t end) const {
  if (direct_ >= 0 && fill_direct(image, begin, end)) return true;
  return fill_cached(image.data() + begin, begin, end);
}

bool ReadFile::fill_cached(char* to, std::uint64_t begin, std::uint64_t end) const {
  return read_some(descriptor_, to, begin, end - begin) == end - begin;
}

// Reads whole pages into the image. The pages at both ends also belong to other readers: each is read into a buffer,
// and only its part of the range is copied.
bool ReadFile::fill_direct(FileImage& image, std::uint64_t begin, std::uint64_t end) const {
  const auto fill_edge = [&](std::uint64_t from, std::uint64_t to) {
    alignas(kDirectAlignment) std::array<char, kDirectAlignment> page;
    const std::uint64_t start = rounded_down(from);
    if (read_some(direct_, page.data(), start, page.size()) < to - start) return false;
    std::memcpy(image.data() + from, page.data() + (from - start), to - from);
    return true;
  };
  const std::uint64_t first = std::min(rounded_up(begin), end);
  if (begin < first && !fill_edge(begin, first)) return false;
  if (first == end) return true;
  const std::uint64_t last = end == size_ ? rounded_up(end) : rounded_down(end);
  if (first < last && read_some(direct_, image.data() + first, first, last - first) < std::min(last, size_) - first)
    return false;
  return last >= end || fill_edge(last, end);
}

}  // namespace torchbridge::train
