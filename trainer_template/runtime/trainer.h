// One training step and one evaluation, over all ranks.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <torchbridge/train/optim/autocast.h>
#include <torchbridge/train/data/dataset.h>
#include <torchbridge/train/ddp/ddp.h>
#include <torchbridge/train/optim/grad_scaler.h>
#include <torchbridge/train/optim/lr_schedule.h>
#include <torchbridge/train/checkpoint/manifest.h>
#include <torchbridge/train/metrics.h>
#include <torchbridge/train/optim/optimizer.h>
#include <torchbridge/train/optim/plateau.h>
#include <torchbridge/train/group/process_group.h>

namespace torchbridge::train {

// The model's output for a batch of inputs, and the mean loss of outputs.
struct Task {
  std::function<at::Tensor(const at::Tensor& inputs)> forward;
  std::function<at::Tensor(const at::Tensor& outputs, const at::Tensor& targets)> loss;
};

struct TrainerOptions {
  LrSchedule schedule;                      // applied to the learning rate that each parameter group has at the start
  double clip_norm = 0;                     // largest norm of all gradients together; 0: they are not clipped
  std::vector<at::Tensor> clipped;          // the parameters of which, in the model's order; empty: the optimizer's, in its order
  c10::ScalarType precision = c10::kFloat;  // of forward and loss: kBFloat16; kHalf, with the loss scaled; kFloat: as the tensors are
  GradScalerOptions scaler;                 // for kHalf
  c10::DeviceType device = c10::kCPU;       // whose operations are autocast
};

// Holds references: group, ddp and optimizer must outlive it.
class Trainer {
 public:
  Trainer(ProcessGroup& group, DistributedDataParallel& ddp, Optimizer& optimizer, Task task, TrainerOptions options,
          Manifest progress);

  // Collective: forward, backward with averaged gradients, optimizer step. With several batches (gradient accumulation), the mean
  // of their losses is learned from in one step.
  StepRecord train_step(std::span<const Batch> parts);
  StepRecord train_step(const Batch& batch) { return train_step(std::span(&batch, 1)); }

  // Collective: each sample once, whatever the number of ranks. Targets are class numbers.
  Evaluation evaluate(const Dataset& dataset, std::int64_t batch_size) const;

  // What a plateau schedule goes by, after an evaluation; other schedules take no notice.
  void observe(const Evaluation& evaluation);

  std::int64_t steps_done() const { return progress_.step; }

  // Collective, between two steps: how far training is, for a checkpoint.
  Manifest progress();

  // Of all ranks, since this was made.
  double samples_per_s() const;

 private:
  void set_learning_rates(std::int64_t step);
  std::unique_ptr<Autocast> autocast() const;
  at::Tensor forward_backward(std::span<const Batch> parts);
  void clip();

  ProcessGroup& group_;
  DistributedDataParallel& ddp_;
  Optimizer& optimizer_;
  Task task_;
  TrainerOptions options_;
  std::vector<double> base_rates_;  // of the parameter groups
  std::optional<Plateau> plateau_;
  std::optional<GradScaler> scaler_;
  Manifest progress_;
  const std::int64_t samples_before_;
  const std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::time_point last_step_;
};

}  // namespace torchbridge::train
