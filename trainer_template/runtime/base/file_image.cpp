#include "trainer_template/runtime/base/file_image.h"

#include <sys/mman.h>

#include <fstream>
#include <limits>
#include <new>
#include <sstream>
#include <string>

namespace torchbridge::train {
namespace {

constexpr std::uint64_t kHugePage = 2 << 20;

// Bytes in free blocks of at least a huge page. /proc/buddyinfo has lines such as "Node 0, zone   Normal   12 8 ...":
// column i is the number of free blocks of 4 KiB << i.
std::uint64_t free_in_large_blocks() {
  constexpr std::uint64_t kPage = 4096;
  std::uint64_t bytes = 0;
  std::ifstream file("/proc/buddyinfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string node, number, zone, name;
    words >> node >> number >> zone >> name;
    std::uint64_t block = kPage;
    for (std::uint64_t count = 0; words >> count; block *= 2) bytes += block >= kHugePage ? count * block : 0;
  }
  return bytes;
}

}  // namespace

FileImage::FileImage(std::uint64_t size) : size_(size) {
  if (size == 0) return;
  if (size > std::numeric_limits<std::size_t>::max() / 2) throw std::bad_alloc();
  void* const address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) throw std::bad_alloc();
  // Twice the size must be free, because other processes allocate too.
  if (size >= kHugePage && free_in_large_blocks() / 2 >= size) madvise(address, size, MADV_HUGEPAGE);
  data_ = static_cast<char*>(address);
}

FileImage::~FileImage() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace torchbridge::train
