// Gradient accumulation: the batches that make one optimizer step.
#pragma once

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>
#include <torchbridge/data.h>
#include <torchbridge/process_group.h>
#include <torchbridge/settings.h>
#include <torchbridge/task.h>

namespace torchbridge::train {

// The number of samples in all batches of a step.
inline std::int64_t samples_in(std::span<const Batch> batches) {
  std::int64_t samples = 0;
  for (const Batch& batch : batches) samples += batch.samples();
  return samples;
}

// The divisor of one batch's mean loss that makes the sum over the step's batches their mean.
inline double loss_divisor(const Batch& batch, std::span<const Batch> batches,
                           AccumulationMean mean) {
  if (mean == AccumulationMean::kBatches) return static_cast<double>(batches.size());
  return static_cast<double>(samples_in(batches)) / static_cast<double>(batch.samples());
}

// Collective. The factor of each batch's mean loss that makes the sum over the step's batches,
// averaged over the ranks, the mean by weight: [batches] doubles on the group's device. NaN if all
// batches of all ranks weigh nothing.
at::Tensor factors_by_weight(const BatchWeight& weight, std::span<const Batch> batches,
                             RankGroup& group);

// weight * value, or 0 where the weight is: also if the value is NaN, as the mean over no target
// is. Tensors without dimensions, of one type.
at::Tensor weighted(const at::Tensor& weight, const at::Tensor& value);

// What a loss with this mean adds to the one that is trained.
at::Tensor part_of_sum(const Loss& loss, const at::Tensor& mean);

}  // namespace torchbridge::train
