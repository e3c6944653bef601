// The order of all samples in an epoch, equal to that of Python's DistributedSampler.
#pragma once

#include <cstdint>
#include <vector>

#include <torchbridge/train/sampler.h>

namespace torchbridge::train {

// torch.randperm(size) from a fresh generator seeded seed + epoch; 0, 1, 2 ... without shuffle. May be called from any thread.
std::vector<std::int64_t> epoch_order(const SamplerOptions& options, std::int64_t epoch);

}  // namespace torchbridge::train
