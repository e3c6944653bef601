// The interface of a data set: samples by index, in batches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer_template/runtime/data/sampler.h"

namespace torchbridge::train {

struct Batch {
  at::Tensor inputs, targets;  // first dimension: the samples
  std::int64_t epoch = 0;
  SamplerPosition next;               // of the first sample after this batch of all ranks
  std::vector<std::int64_t> indices;  // of its samples in the data set; the loader fills it in
  double waited_s = 0;                // seconds that Loader::next() took for it
  std::int64_t samples() const { return targets.size(0); }
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;
  // Inputs and targets of these samples, each in one new tensor (batch_tensor). Called by several threads at once. May
  // throw: the loader finds the sample that fails.
  virtual Batch collate(std::span<const std::int64_t> indices) const = 0;
  // The bytes that its samples are made of, in pieces that stay unchanged while it lives. A checkpoint holds a
  // fingerprint of them, so that training does not resume within an epoch of other data. No pieces: no fingerprint.
  virtual std::vector<std::span<const std::byte>> contents() const { return {}; }
};

// A new tensor on the CPU for a batch: in pinned memory where the loader will copy it to a GPU.
at::Tensor batch_tensor(at::IntArrayRef sizes, at::ScalarType type);

// While it lives, batch_tensor of this thread takes memory that is pinned for the accelerator of the process.
class PinnedBatches {
 public:
  explicit PinnedBatches(bool pinned);
  ~PinnedBatches();
  PinnedBatches(const PinnedBatches&) = delete;
  PinnedBatches& operator=(const PinnedBatches&) = delete;

 private:
  bool before_;
};

}  // namespace torchbridge::train
