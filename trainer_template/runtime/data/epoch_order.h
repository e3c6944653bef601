// The order of all samples in an epoch.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torchbridge/sampler.h>

#include "trainer_template/runtime/data/keyed_permutation.h"

namespace torchbridge::train {

// May be read from any thread.
class EpochOrder {
 public:
  // kShuffled makes the list of torch.randperm(size) from a fresh generator seeded seed + epoch, as
  // Python's DistributedSampler does: 4 bytes a sample (8 from 2^31 samples on). The others take no
  // memory and no time.
  EpochOrder(const SamplerOptions& options, std::int64_t epoch);

  // The index of the sample. REQUIRES: 0 <= position < size.
  std::int64_t operator[](std::int64_t position) const;

 private:
  at::Tensor list_;                              // kShuffled
  std::optional<KeyedPermutation> permutation_;  // kPermuted
};

// The indices of samples begin .. end-1 of this rank's shard, which begins after `consumed`.
std::vector<std::int64_t> rank_shard(const SamplerOptions& options, const EpochOrder& order,
                                     std::int64_t consumed, std::int64_t begin, std::int64_t end);

}  // namespace torchbridge::train
