#include <algorithm>

#include <torchbridge/sampler.h>

namespace torchbridge::train {

std::int64_t samples_per_rank(const SamplerOptions& options, std::int64_t consumed) {
  const std::int64_t left = std::max<std::int64_t>(options.size - consumed, 0);
  if (options.allow_uneven_shards)
    return (std::max<std::int64_t>(left - options.rank, 0) + options.world_size - 1) /
           options.world_size;
  return options.drop_last ? left / options.world_size
                           : (left + options.world_size - 1) / options.world_size;
}

std::int64_t rank_position(const SamplerOptions& options, std::int64_t consumed, std::int64_t nth) {
  return (consumed + options.rank + nth * options.world_size) % options.size;
}

}  // namespace torchbridge::train
