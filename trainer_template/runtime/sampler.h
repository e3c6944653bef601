// Which samples a rank trains on, and in which order: Python's DistributedSampler, index for index.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace torchbridge::train {

struct SamplerOptions {
  std::int64_t size = 0;   // samples in the data set
  int world_size = 1;
  int rank = 0;
  std::uint64_t seed = 0;
  bool shuffle = true;
  bool drop_last = false;  // leave out the last samples rather than repeat the first ones, so that all ranks get as many
};

// How far training has come, at any world size: samples of the current epoch that all ranks together have consumed.
struct SamplerPosition {
  std::int64_t epoch = 0;
  std::int64_t consumed = 0;

  bool operator==(const SamplerPosition&) const = default;
};

// Samples that each rank takes from an epoch of which `consumed` are gone.
std::int64_t samples_per_rank(const SamplerOptions& options, std::int64_t consumed = 0);

// What this rank takes from the epoch, given the epoch's order of all samples: every world_size-th, from `rank` on, of
// what is left after `consumed`. The rest is padded with the first samples of the order, or cut (drop_last).
// At an unchanged world size, going on from a position gives exactly the samples that were still to come.
std::vector<std::int64_t> rank_share(const SamplerOptions& options,
                                     std::span<const std::int64_t> order,
                                     std::int64_t consumed = 0);

// Samples rank, rank + world_size ... once each, for evaluation: no padding, so ranks may get different numbers.
std::vector<std::int64_t> each_once(std::int64_t size, int rank, int world_size);

}  // namespace torchbridge::train
