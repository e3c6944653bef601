// How far training has come through its data set.
#pragma once

#include <cstdint>

namespace torchbridge::train {

// At any world size: samples of the current epoch that all ranks together have consumed.
// With the seed and the kind of order it is the whole state of a sampler.
struct SamplerPosition {
  std::int64_t epoch = 0;
  std::int64_t consumed = 0;

  bool operator==(const SamplerPosition&) const = default;
};

}  // namespace torchbridge::train
