// The checksum of checkpoints: XXH3-128, as `xxh128sum` prints it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace torchbridge::train {

// Bytes in any number of pieces. One thread.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;

  void add(std::string_view bytes);
  std::string digest() const;  // of all bytes added so far, 32 hexadecimal digits

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string checksum_of(std::string_view bytes);

}  // namespace torchbridge::train
