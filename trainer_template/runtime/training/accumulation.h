// Gradient accumulation: the batches that make one optimizer step.
#pragma once

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>
#include <torchbridge/data.h>
#include <torchbridge/settings.h>

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

// The mean loss of one batch, divided so that the sum over the step's batches is their mean.
inline at::Tensor part_of_step(const at::Tensor& mean_loss, const Batch& batch,
                               std::span<const Batch> batches, AccumulationMean mean) {
  const double divisor = loss_divisor(batch, batches, mean);
  return divisor == 1 ? mean_loss : mean_loss.div(divisor);
}

}  // namespace torchbridge::train
