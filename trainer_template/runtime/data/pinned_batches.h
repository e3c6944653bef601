// Pinned memory for the batches that a thread makes.
#pragma once

namespace torchbridge::train {

// While it lives, batch_tensor of this thread takes memory that is pinned for the accelerator of
// the process.
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
