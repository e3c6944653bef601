// The checksum of checkpoints and of data sets: XXH3-128, as `xxh128sum` prints it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
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

// Identifies a data set: the XXH3-128 of the sizes of these pieces (Dataset::contents()) and of
// their bytes: of all bytes up to 64 MiB, else of 256 evenly spread blocks of 4 KiB from the first
// byte to the last. Empty if there are no pieces.
std::string fingerprint_of(std::span<const std::span<const std::byte>> pieces);

}  // namespace torchbridge::train
