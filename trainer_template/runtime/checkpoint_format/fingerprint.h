// What tells one data set from another of the same size.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace torchbridge::train {

// The XXH3-128 of the sizes of these pieces (Dataset::contents()), and of their bytes: of all of them up to 64 MiB, of
// more of 256 blocks of 4 KiB from the first byte to the last, evenly spread. Empty where there are no pieces.
std::string fingerprint_of(std::span<const std::span<const std::byte>> pieces);

}  // namespace torchbridge::train
