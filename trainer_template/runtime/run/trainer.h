// One training step and one evaluation, over all ranks.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <torchbridge/train/checkpoint/manifest.h>
#include <torchbridge/train/data/dataset.h>
#include <torchbridge/train/ddp/ddp.h>
#include <torchbridge/train/group/process_group.h>
#include <torchbridge/train/optim/autocast.h>
#include <torchbridge/train/optim/grad_scaler.h>
#include <torchbridge/train/optim/lr_schedule.h>
#include <torchbridge/train/optim/optimizer.h>
#include <torchbridge/train/optim/plateau.h>
#include <torchbridge/train/run/metrics.h>
#include <torchbridge/train/run/stop_agreement.h>
#include <torchbridge/train/run/task.h>

namespace torchbridge::train {

enum class OnNan { kStop, kSkip };

// Of the batches of an accumulated step, of which an epoch's last one may be smaller.
enum class AccumulationMean {
  kSamples,  // each sample weighs the same
  kBatches,  // each batch: the usual loss / N of Python programs. With batches of one size it is the same, bit for bit
};

struct TrainerOptions {
  LrSchedule schedule;                      // applied to the learning rate that each parameter group has at the start
  double clip_norm = 0;                     // largest norm of all gradients together; 0: they are not clipped
  bool grad_norm = false;                   // measured also where they are not clipped; not for sparse gradients
  std::vector<at::Tensor> clipped;          // the parameters of which, in the model's order; empty: the optimizer's, in its order
  AccumulationMean accumulation_mean = AccumulationMean::kSamples;
  c10::ScalarType precision = c10::kFloat;  // of forward and loss: kBFloat16; kHalf, with the loss scaled; kFloat: as the tensors are
  GradScalerOptions scaler;                 // for kHalf
  c10::DeviceType device = c10::kCPU;       // whose operations are autocast
  OnNan on_nan = OnNan::kStop;              // a loss, a gradient, or a norm of the gradients, that is not finite
  std::int64_t max_skips = 0;               // so many steps left out one after the other are an error; 0: no limit
  double peak_tflops = 0;                   // of this rank's device; 0: unknown
  StopAgreement* stop = nullptr;            // told once a step, asked in evaluations; null: nobody stops
  std::function<at::Tensor(const at::Tensor& inputs)> eval_forward;  // instead of the model's; empty: the model's
};

// Holds references: group, task, model, ddp and optimizer must outlive it. One thread.
class Trainer {
 public:
  Trainer(ProcessGroup& group, const Task& task, Model& model, DistributedDataParallel& ddp, Optimizer& optimizer,
          TrainerOptions options, Manifest progress);

  // Collective: forward, backward with averaged gradients, optimizer step. With several batches (gradient accumulation), the mean
  // of their losses (accumulation_mean) is learned from in one step. Throws TrainError on the lowest rank, and
  // PeerFailed on the others, when a loss or a gradient is not finite: with its samples, and before the optimizer's
  // step. By OnNan::kSkip parameters and buffers are as before then. Throws TrainError on all ranks after max_skips
  // steps that were left out.
  StepRecord train_step(std::span<const Batch> parts);
  StepRecord train_step(const Batch& batch) { return train_step(std::span(&batch, 1)); }

  // Collective: each sample once, whatever the number of ranks, with the model in eval mode and the buffers of rank 0.
  // Nothing where the ranks agree to stop in its middle; then it is due when training goes on from the checkpoint of
  // this step.
  std::optional<Evaluation> evaluate(const Dataset& dataset, std::int64_t batch_size);

  // What a plateau schedule goes by, after an evaluation; other schedules take no notice.
  void observe(const Evaluation& evaluation);

  std::int64_t steps_done() const { return progress_.step; }
  bool evaluation_is_due() const { return progress_.state.contains(kEvaluationDue); }

  // Collective, between two steps: how far training is, for a checkpoint.
  Manifest progress();

  // Since training began, also before a restart; without what was done after the checkpoint that it went on from.
  double seconds() const;

  // Of all ranks, since this was made, but for evaluations.
  double samples_per_s() const;

 private:
  // What the ranks tell each other in a step, in the one reduction that the loss needs anyway.
  struct Shared {
    double loss = 0;         // mean
    int not_finite = 0;      // ranks whose loss is not
    bool found_inf = false;  // a gradient that is not, on any rank
  };

  void set_learning_rates(std::int64_t step);
  std::unique_ptr<Autocast> autocast() const;
  at::Tensor forward_backward(std::span<const Batch> parts);
  void keep_buffers();
  void restore_buffers();
  std::optional<at::Tensor> clip();
  at::Tensor found_inf(c10::Device device) const;
  Shared share(const at::Tensor& loss, const at::Tensor& found_inf);
  bool refuse(const at::Tensor& loss, const Shared& shared, const StepRecord& record, std::span<const Batch> parts);
  bool step_optimizer();
  void count_skips(const StepRecord& record);
  at::Tensor forward(const Batch& part);
  void measure(StepRecord& record, std::span<const Batch> parts);
  // Adds the batch to the sums of all metrics, one after the other.
  void evaluate_batch(const Batch& batch, const at::Tensor& sums);

  static constexpr const char* kEvaluationDue = "evaluation.due";  // in a checkpoint's state

  ProcessGroup& group_;
  const Task& task_;
  Model& model_;
  DistributedDataParallel& ddp_;
  Optimizer& optimizer_;
  TrainerOptions options_;
  std::vector<Metric> metrics_;  // the first is the loss
  double flops_;  // of a sample; 0: not told
  std::vector<double> base_rates_;  // of the parameter groups
  std::optional<Plateau> plateau_;
  std::optional<GradScaler> scaler_;
  Manifest progress_;
  std::vector<at::Tensor> buffers_, buffers_before_;  // of the model, and what they were before the step; for OnNan::kSkip alone
  std::optional<double> comm_share_;
  std::int64_t steps_here_ = 0;  // of this process
  std::int64_t skips_ = 0;       // steps up to the latest that were left out
  const std::int64_t samples_before_;
  const double seconds_before_;
  const std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::time_point last_step_;  // its end, and of an evaluation after it
  std::chrono::steady_clock::duration evaluations_{};
};

}  // namespace torchbridge::train
