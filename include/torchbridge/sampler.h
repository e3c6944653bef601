// Which samples a rank trains on, and their positions in the epoch's order: Python's
// DistributedSampler, position for position.
#pragma once

#include <cstdint>

#include <torchbridge/train_state.h>

namespace torchbridge::train {

enum class Order {
  kShuffled,    // Python's, index for index: torch.randperm from seed + epoch. Every rank makes the
                // list of all samples
  kPermuted,    // as random, but computed index by index: no list, no wait at the start of an epoch
  kSequential,  // 0, 1, 2 ...: Python's shuffle=False
};

struct SamplerOptions {
  std::int64_t size = 0;  // samples in the data set
  int world_size = 1;
  int rank = 0;
  std::uint64_t seed = 0;
  Order order = Order::kShuffled;
  // Drop the last samples instead of repeating the first ones, so that all ranks get the same
  // number.
  bool drop_last = false;
  // For evaluation: neither repeat nor drop samples; ranks may get different numbers.
  bool allow_uneven_shards = false;
};

// The number of samples that a rank takes from an epoch of which `consumed` are used.
std::int64_t samples_per_rank(const SamplerOptions& options, std::int64_t consumed = 0);

// The position in the epoch's order of the nth sample (from 0) that this rank takes after
// `consumed`: every world_size-th, from `rank` on. Past the end the order begins again, as often as
// the padding needs. At an unchanged world size, resuming from a position gives exactly the samples
// that were left. REQUIRES: 0 <= nth < samples_per_rank(options, consumed).
std::int64_t rank_position(const SamplerOptions& options, std::int64_t consumed, std::int64_t nth);

}  // namespace torchbridge::train
