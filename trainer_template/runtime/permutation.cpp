#include <torchbridge/train/permutation.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/randperm.h>

#include <numeric>

namespace torchbridge::train {

std::vector<std::int64_t> epoch_order(const SamplerOptions& options, std::int64_t epoch) {
  std::vector<std::int64_t> order(options.size);
  if (options.shuffle) {
    const at::Tensor permutation = at::randperm(
        options.size, at::detail::createCPUGenerator(options.seed + epoch), at::TensorOptions(at::kLong));
    const auto* first = permutation.const_data_ptr<std::int64_t>();
    order.assign(first, first + options.size);
  } else {
    std::iota(order.begin(), order.end(), 0);
  }
  return order;
}

}  // namespace torchbridge::train
