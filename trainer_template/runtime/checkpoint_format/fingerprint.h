// A checksum that identifies a data set.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace torchbridge::train {

// The XXH3-128 of the sizes of these pieces (Dataset::contents()) and of their bytes: of all bytes
// up to 64 MiB, else of 256 evenly spread blocks of 4 KiB from the first byte to the last. Empty if
// there are no pieces.
std::string fingerprint_of(std::span<const std::span<const std::byte>> pieces);

}  // namespace torchbridge::train
