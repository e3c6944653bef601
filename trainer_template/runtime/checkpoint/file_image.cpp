#include <torchbridge/train/checkpoint/file_image.h>

#include <sys/mman.h>

#include <limits>
#include <new>

namespace torchbridge::train {

FileImage::FileImage(std::uint64_t size) : size_(size) {
  if (size == 0) return;
  if (size > std::numeric_limits<std::size_t>::max() / 2) throw std::bad_alloc();
  void* const address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<char*>(address);
}

FileImage::~FileImage() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace torchbridge::train
