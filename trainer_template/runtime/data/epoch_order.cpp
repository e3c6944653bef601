#include "trainer_template/runtime/data/epoch_order.h"

#include <limits>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>

namespace torchbridge::train {

EpochOrder::EpochOrder(const SamplerOptions& options, std::int64_t epoch) {
  if (options.order == Order::kPermuted) permutation_.emplace(options.size, options.seed, epoch);
  if (options.order != Order::kShuffled) return;
  // randperm draws the same numbers whatever the type of the list.
  const auto type = options.size <= std::numeric_limits<std::int32_t>::max() ? at::kInt : at::kLong;
  list_ =
      at::randperm(options.size,
                   at::detail::createCPUGenerator(options.seed + static_cast<std::uint64_t>(epoch)),
                   at::TensorOptions(type));
}

std::int64_t EpochOrder::operator[](std::int64_t position) const {
  if (permutation_) return (*permutation_)[position];
  if (!list_.defined()) return position;
  return list_.scalar_type() == at::kInt ? list_.const_data_ptr<std::int32_t>()[position]
                                         : list_.const_data_ptr<std::int64_t>()[position];
}

std::vector<std::int64_t> rank_shard(const SamplerOptions& options, const EpochOrder& order,
                                     std::int64_t consumed, std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> shard;
  shard.reserve(end - begin);
  for (std::int64_t nth = begin; nth < end; ++nth)
    shard.push_back(order[rank_position(options, consumed, nth)]);
  return shard;
}

}  // namespace torchbridge::train
