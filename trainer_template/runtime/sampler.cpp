#include <torchbridge/train/sampler.h>

#include <algorithm>

namespace torchbridge::train {

std::int64_t samples_per_rank(const SamplerOptions& options, std::int64_t consumed) {
  const std::int64_t left = std::max<std::int64_t>(options.size - consumed, 0);
  return options.drop_last ? left / options.world_size
                           : (left + options.world_size - 1) / options.world_size;
}

std::vector<std::int64_t> rank_share(const SamplerOptions& options,
                                     std::span<const std::int64_t> order, std::int64_t consumed) {
  std::vector<std::int64_t> share(samples_per_rank(options, consumed));
  std::int64_t position = consumed + options.rank;
  for (std::int64_t& index : share) {
    // Past the end the order begins again: the padding, however often it must repeat.
    index = order[position % options.size];
    position += options.world_size;
  }
  return share;
}

std::vector<std::int64_t> each_once(std::int64_t size, int rank, int world_size) {
  std::vector<std::int64_t> indices;
  for (std::int64_t index = rank; index < size; index += world_size) indices.push_back(index);
  return indices;
}

}  // namespace torchbridge::train
