// A step of the training loop, and the forward pass of its batches.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <torchbridge/data.h>
#include <torchbridge/part.h>
#include <torchbridge/settings.h>

namespace torchbridge::train {

class DistributedDataParallel;
class Model;
struct Outputs;
struct StepSums;
class Task;

// One optimizer step as the training loop sees it: its micro-batches, their losses, and the numbers
// that the program logs of it. Made by Session::next_step(). For one thread.
class TrainingStep {
 public:
  // `batches`: of this rank, not empty. `precision`: of forward passes, for autocast; c10::kFloat:
  // each operation computes in the type of its tensors.
  TrainingStep(const StepMetrics& record, std::vector<Batch> batches, AccumulationMean mean,
               c10::ScalarType precision = c10::kFloat);
  TrainingStep(TrainingStep&&) noexcept;
  ~TrainingStep();

  // Of this step, from 1.
  std::int64_t number() const;
  const std::vector<Batch>& batches() const;
  c10::ScalarType precision() const;
  // REQUIRES: `batch` is one of batches(). The backward pass of the last one averages the
  // gradients.
  bool is_last(const Batch& batch) const { return &batch == &batches().back(); }

  // The part that the mean loss over one batch has in the loss of the step: the parts of all
  // batches() add up to their mean (--accumulation-mean). Where the task weighs batches, their mean
  // over the ranks is that by weight, and a batch that weighs nothing has no part, also if its mean
  // is NaN; throws as factor_of() does.
  at::Tensor share_of(const Batch& batch, const at::Tensor& mean_loss) const;

  // Logs a number of the program's own: a tensor without dimensions, on the device of the loss.
  // --metrics, --tensorboard and the progress line have the mean over the calls with this name in
  // the step, and over the ranks. It travels with the reduction of the loss, and nothing waits for
  // it. Call it before Session::reduce(), with the same names in the same order on all ranks.
  // Throws TrainError after reduce(), for another tensor, and for a name that is not of small
  // letters, digits and underscores, or that the trainer's own metrics have.
  void log(const std::string& name, const at::Tensor& number);

  // From Session::reduce() on: float32 without dimensions, on the device. Exactly 1 if a loss or
  // gradient is not finite on any rank, else 0.
  const at::Tensor& found_inf() const;

  // The factor of the mean loss of one of batches(), a double without dimensions, where the task
  // weighs them; else undefined. Throws TrainError for another batch.
  at::Tensor factor_of(const Batch& batch) const;

  // For Session: what forward_loss() calls where it throws, in time for a save of the steps before;
  // the factor of each batch's mean loss, [batches], where the task weighs them; what the metrics
  // have of the step so far; the means of log(), which the record names from then on; and the sums
  // that reduce() has made.
  void on_rejected(std::function<void(const TrainingStep&)> call);
  void rejected() const;
  void set_factors(at::Tensor factors);
  StepMetrics& record();
  std::vector<at::Tensor> take_logged();
  void set_sums(StepSums sums);
  const StepSums& sums() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Forward pass and loss of one of the step's batches, in the precision of the run. Returns the mean
// loss over the batch, without dimensions, to call backward() on: the sum of the task's losses,
// each of which `step` logs if there are several. `loss` names one of them, to train that one
// alone; the model still computes all of its outputs. Throws TrainError, which names the step, if
// the model rejects the batch, as batch normalisation rejects one value a channel. Collective if
// DDP broadcasts buffers. `outputs` gets what the model returned, without gradients, for numbers of
// the batch such as its accuracy.
at::Tensor forward_loss(DistributedDataParallel& ddp, Model& model, const Task& task,
                        const Batch& batch, TrainingStep& step, const std::string& loss = "",
                        Outputs* outputs = nullptr);

}  // namespace torchbridge::train
