// The numbers of a step, summed over the ranks: computed and used on the device, and read by the host later.
#pragma once

#include <deque>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include "trainer_template/runtime/data/dataset.h"
#include "trainer_template/runtime/output/metrics.h"
#include "trainer_template/runtime/process_group/rank_group.h"
#include "trainer_template/runtime/training/stop_agreement.h"

namespace torchbridge::train {

struct StepSums {
  at::Tensor found_inf;  // float32, no dimensions: exactly 1 if a loss or gradient is not finite on any rank, else 0
  at::Tensor numbers;    // float64 [7 or 8]: StepReader makes StepNumbers of them
};

// Collective: one all-reduce. `loss` is this rank's mean, without dimensions; `found_inf` the result of
// GradScaler::unscale(); `norm` that of the averaged gradients, the same on all ranks, or undefined. All are on one
// device, and so is the result: the host does not wait.
StepSums reduce_step(const at::Tensor& loss, const at::Tensor& found_inf, const at::Tensor& norm,
                     const StopAgreement::Votes& votes, RankGroup& group);

// The numbers of a step on the host.
struct StepNumbers {
  double loss = 0;              // mean over the ranks
  double own_loss = 0;          // of this rank
  std::int64_t bad_losses = 0;  // ranks whose loss is not finite
  bool bad_gradient = false;    // a gradient is not finite, on any rank
  std::optional<double> norm;   // of the averaged gradients, before clipping
  StopAgreement::Votes votes;   // sums
};

// A step whose numbers are on the host.
struct FinishedStep {
  StepMetrics record;                              // loss, grad_norm and skipped are those of the numbers
  std::vector<std::vector<std::int64_t>> samples;  // of this rank, batch by batch
  StepNumbers numbers;
};

// Steps whose numbers a GPU may still compute. The numbers are copied to pinned memory after the step and read during
// the next step, so the host is at most one step ahead; on a CPU they are read at once. For one thread; all ranks read
// the same steps.
class StepReader {
 public:
  // `lag`: steps that may be unread after read().
  StepReader(c10::Device device, std::size_t lag) : device_(device), lag_(lag) {}
  explicit StepReader(c10::Device device) : StepReader(device, device.is_cpu() ? 0 : 1) {}

  // Starts the copy of a step's numbers. `batches`: the batches of the step.
  void add(const StepMetrics& record, std::span<const Batch> batches, const StepSums& sums);

  // Returns the steps up to the lag, oldest first, or all steps if `all`, as before an evaluation, a checkpoint, and at
  // the end. Waits for their numbers.
  std::vector<FinishedStep> read(bool all = false);

 private:
  struct CopyingStep {
    FinishedStep step;
    at::Tensor numbers;  // on the CPU
    std::optional<c10::Event> copied;
  };

  c10::Device device_;
  std::size_t lag_;
  std::deque<CopyingStep> steps_;
};

}  // namespace torchbridge::train
