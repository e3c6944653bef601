// Which samples a rank trains on, and where they stand in the epoch's order: Python's DistributedSampler, position for
// position.
#pragma once

#include <cstdint>

#include "trainer_template/runtime/base/sampler_position.h"

namespace torchbridge::train {

enum class Order {
  kShuffled,  // Python's, index for index: torch.randperm from seed + epoch, a list of all samples that every rank
              // makes
  kPermuted,  // as random, but computed index by index: no list, no wait at the start of an epoch (keyed_permutation.h)
  kSequential,  // 0, 1, 2 ...: Python's shuffle=False
};

struct SamplerOptions {
  std::int64_t size = 0;  // samples in the data set
  int world_size = 1;
  int rank = 0;
  std::uint64_t seed = 0;
  Order order = Order::kShuffled;
  bool drop_last =
      false;  // leave out the last samples rather than repeat the first ones, so that all ranks get as many
  bool allow_uneven_shards =
      false;  // for evaluation: neither repeat nor leave out any, so that ranks may get different numbers
};

// Samples that each rank takes from an epoch of which `consumed` are gone.
std::int64_t samples_per_rank(const SamplerOptions& options, std::int64_t consumed = 0);

// Where in the epoch's order the nth sample (from 0) stands that this rank takes after `consumed`: every world_size-th,
// from `rank` on. Past the end the order begins again: the padding, however often it must repeat. At an unchanged world
// size, going on from a position gives exactly the samples that were still to come. REQUIRES: 0 <= nth <
// samples_per_rank(options, consumed).
std::int64_t rank_position(const SamplerOptions& options, std::int64_t consumed, std::int64_t nth);

}  // namespace torchbridge::train
