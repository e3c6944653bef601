// The position of the training in its data set.
#pragma once

#include <cstdint>

namespace torchbridge::train {

// Independent of the world size. With the seed and the kind of order it is the whole state of a sampler.
struct SamplerPosition {
  std::int64_t epoch = 0;
  std::int64_t consumed = 0;  // samples of this epoch, by all ranks together

  bool operator==(const SamplerPosition&) const = default;
};

}  // namespace torchbridge::train
