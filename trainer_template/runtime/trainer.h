// One training step and one evaluation, over all ranks.
#pragma once

#include <chrono>
#include <functional>

#include <torchbridge/train/dataset.h>
#include <torchbridge/train/ddp.h>
#include <torchbridge/train/lr_schedule.h>
#include <torchbridge/train/manifest.h>
#include <torchbridge/train/metrics.h>
#include <torchbridge/train/optimizer.h>
#include <torchbridge/train/process_group.h>

namespace torchbridge::train {

// The model's output for a batch of inputs, and the mean loss of outputs.
struct Task {
  std::function<at::Tensor(const at::Tensor& inputs)> forward;
  std::function<at::Tensor(const at::Tensor& outputs, const at::Tensor& targets)> loss;
};

// Holds references: group, ddp and optimizer must outlive it.
class Trainer {
 public:
  Trainer(ProcessGroup& group, DistributedDataParallel& ddp, Optimizer& optimizer, Task task, LrSchedule schedule,
          Manifest progress);

  // Collective: forward, backward with averaged gradients, optimizer step.
  StepRecord train_step(const Batch& batch);

  // Collective: each sample once, whatever the number of ranks. Targets are class numbers.
  Evaluation evaluate(const Dataset& dataset, std::int64_t batch_size) const;

  // Collective, between two steps: how far training is, for a checkpoint.
  Manifest progress();

  // Of all ranks, since this was made.
  double samples_per_s() const;

 private:
  ProcessGroup& group_;
  DistributedDataParallel& ddp_;
  Optimizer& optimizer_;
  Task task_;
  LrSchedule schedule_;
  Manifest progress_;
  const std::int64_t samples_before_;
  const std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::time_point last_step_;
};

}  // namespace torchbridge::train
