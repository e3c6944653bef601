// The numbers of a step, summed over the ranks: computed and used on the device, and read by the
// host later.
#pragma once

#include <deque>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <torchbridge/data.h>
#include <torchbridge/part.h>
#include <torchbridge/process_group.h>

namespace torchbridge::train {

struct StepSums {
  at::Tensor found_inf;  // float32, no dimensions: exactly 1 if a loss or gradient is not finite on
                         // any rank, else 0
  at::Tensor numbers;  // of the loss's type, in one dimension: StepReader makes StepNumbers of them
};

// What this rank contributes to the numbers of a step. The tensors have no dimensions and are on
// one device.
struct OwnNumbers {
  at::Tensor loss;       // its mean
  at::Tensor found_inf;  // of GradScaler::unscale()
  at::Tensor norm = {};  // of the averaged gradients, the same on all ranks; or undefined
  StopVotes votes = {};
  std::vector<at::Tensor> logged = {};  // numbers of the program's own, as many on all ranks
};

// Collective: one all-reduce. The result is on the device of `own`: the host does not wait.
StepSums reduce_step(RankGroup& group, const OwnNumbers& own);

// Steps whose numbers a GPU may still compute. The numbers are copied to pinned memory after the
// step and read during the next step, so the host is at most one step ahead; on a CPU they are read
// at once. For one thread; all ranks read the same steps.
class StepReader {
 public:
  // `lag`: steps that may be unread after read(). `world_size`: ranks that reduced them.
  StepReader(c10::Device device, int world_size, std::size_t lag)
      : device_(device), world_size_(world_size), lag_(lag) {}
  StepReader(c10::Device device, int world_size)
      : StepReader(device, world_size, device.is_cpu() ? 0 : 1) {}

  // Starts the copy of a step's numbers. `batches`: the batches of the step.
  void add(const StepMetrics& record, std::span<const Batch> batches, const StepSums& sums);

  // Returns the steps up to the lag, oldest first, or all steps if `all`, as before an evaluation,
  // a checkpoint, and at the end. Waits for their numbers.
  std::vector<FinishedStep> read(bool all = false);

 private:
  struct CopyingStep {
    FinishedStep step;
    at::Tensor numbers;  // on the CPU
    std::optional<c10::Event> copied;
  };

  c10::Device device_;
  int world_size_;
  std::size_t lag_;
  std::deque<CopyingStep> steps_;
};

}  // namespace torchbridge::train
