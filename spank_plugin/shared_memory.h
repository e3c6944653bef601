// Memory that slurmstepd shares with the tasks that it forks later, and with no program: it is gone with exec.
#pragma once

#include <cstddef>

namespace torchbridge {

class SharedMemory {
 public:
  SharedMemory() = default;
  // Zeroes. Pages that nobody touches are not used. Null where there is no memory.
  explicit SharedMemory(std::size_t size);
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace torchbridge
