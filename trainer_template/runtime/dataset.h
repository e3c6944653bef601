// What the loader reads: samples by index, in batches.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include <torchbridge/train/sampler.h>

namespace torchbridge::train {

struct Batch {
  at::Tensor inputs, targets;  // first dimension: the samples
  std::int64_t epoch = 0;
  SamplerPosition next;        // of the sample after this batch, of all ranks
  std::int64_t samples() const { return targets.size(0); }
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;
  // Inputs and targets of these samples, each in one new tensor. Called by several threads at once.
  virtual Batch collate(std::span<const std::int64_t> indices) const = 0;
};

}  // namespace torchbridge::train
