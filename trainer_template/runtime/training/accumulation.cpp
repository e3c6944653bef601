#include "trainer_template/runtime/training/accumulation.h"

#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <c10/core/GradMode.h>

namespace torchbridge::train {

at::Tensor factors_by_weight(const BatchWeight& weight, std::span<const Batch> batches,
                             RankGroup& group) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> weights;
  for (const Batch& batch : batches) weights.push_back(weight_of(weight, batch));
  const at::Tensor own = at::stack(weights);
  const at::Tensor total = own.sum();
  group.sum(total);
  return own.mul(group.world_size()).div_(total);
}

at::Tensor weighted(const at::Tensor& weight, const at::Tensor& value) {
  return at::where(weight == 0, weight, value * weight);
}

at::Tensor part_of_sum(const Loss& loss, const at::Tensor& mean) {
  return loss.weight == 1 ? mean : mean * loss.weight;
}

}  // namespace torchbridge::train
