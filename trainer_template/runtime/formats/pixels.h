// Pixels from bytes to numbers.
#pragma once

#include <cstdint>
#include <span>

namespace torchbridge::train {

// values[i] = bytes[i] / 255, to the last bit what torch's division of floats gives. REQUIRES: room
// for as many values.
void unit_floats(std::span<const std::uint8_t> bytes, float* values);

}  // namespace torchbridge::train
