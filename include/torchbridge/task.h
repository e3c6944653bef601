// A task: data, model, loss and metrics. This is the part that a user of the template writes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/linear.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torchbridge/data.h>
#include <torchbridge/env_map.h>
#include <torchbridge/errors.h>
#include <torchbridge/lr_schedule.h>
#include <torchbridge/option_table.h>

#include "bridge/base/nearest_name.h"

namespace torchbridge::train {

// A fully connected layer that computes as Python's torch.nn.Linear does: torch::nn::Linear with
// the same parameters and the same initial values, but at::linear as its forward pass, which is
// Python's. C++'s own is addmm for two dimensions and, for more, a matmul and an addition: under
// autocast to bf16 the results differ in their last bits.
class LinearImpl : public torch::nn::LinearImpl {
 public:
  using torch::nn::LinearImpl::LinearImpl;
  at::Tensor forward(const at::Tensor& input) { return at::linear(input, weight, bias); }
};
TORCH_MODULE(Linear);

// What a model makes of a batch. The first dimension is the samples'.
struct Outputs {
  at::Tensor outputs;
  // Those of a second head, or whatever else a loss needs.
  std::map<std::string, at::Tensor> named = {};

  // One of `named`. Throws TrainError, which lists them, for another name.
  const at::Tensor& operator[](const std::string& name) const {
    return tensor_named(name, named, "what the model returns");
  }
};

// For DistributedDataParallel.
template <class Visit>
void visit_tensors(Outputs& outputs, Visit&& visit) {
  if (outputs.outputs.defined()) visit(outputs.outputs);
  for (auto& [name, tensor] : outputs.named) visit(tensor);
}

// A model of one input and one output has forward(), any other forward_batch(). Random numbers that
// it draws, as noise or dropout, are the same on all ranks unless --seed-per-rank.
class Model : public torch::nn::Module {
 public:
  // Maps the inputs of a batch to its outputs; the first dimension of both is the samples'.
  virtual at::Tensor forward(const at::Tensor& inputs);
  virtual Outputs forward_batch(const Batch& batch) { return {forward(batch.inputs)}; }
};

// The values of --data and --model.
struct TaskSettings {
  std::string data, model;
};

// A function of the outputs and the targets of a batch, or of all that the model returns and the
// whole batch: it takes (const at::Tensor&, const at::Tensor&) or (const Outputs&, const Batch&).
class BatchFunction {
 public:
  BatchFunction() = default;
  template <class Function>
  requires(!std::is_same_v<Function, BatchFunction>) BatchFunction(Function function) {
    if constexpr (std::is_invocable_v<Function&, const Outputs&, const Batch&>)
      function_ = std::move(function);
    else
      function_ = [function = std::move(function)](const Outputs& outputs, const Batch& batch) {
        return function(outputs.outputs, batch.targets);
      };
  }
  at::Tensor operator()(const Outputs& outputs, const Batch& batch) const {
    return function_(outputs, batch);
  }

 private:
  std::function<at::Tensor(const Outputs&, const Batch&)> function_;
};

// How much a batch counts where the mean of several batches is made: a number that is not negative,
// in a tensor without dimensions on the batch's device, as the number of tokens that are not
// padding. Empty: the number of its samples.
using BatchWeight = std::function<at::Tensor(const Batch&)>;

// weight(batch) as a double without dimensions. Throws TrainError for a tensor of another size.
at::Tensor weight_of(const BatchWeight& weight, const Batch& batch);

// A part of what is trained: `mean` is that over a batch, as a tensor without dimensions.
struct Loss {
  std::string name;  // "mask": mask_loss and eval_mask_loss in metrics files, without the weight
  BatchFunction mean;
  double weight = 1;  // in the sum
};

// A number that evaluation computes in addition to the loss, from sums over samples. `sums` and
// `value` are called by the training thread, without gradients and with the model in eval mode; an
// exception ends the run.
struct Metric {
  std::string name;       // "f1": eval_f1 in metrics files
  std::int64_t size = 0;  // number of sums
  // The sums of a batch: `size` numbers of any type, in a tensor of any shape, on the device of the
  // outputs.
  BatchFunction sums;
  // From the sums over all samples of all ranks: [size] doubles on the CPU. Called on each rank,
  // with the same sums.
  std::function<double(const at::Tensor& sums)> value;
};

// The metric whose value is a mean over all batches. `mean` gives that of a batch, as a tensor
// without dimensions. What it gives for a batch that weighs nothing does not count.
Metric weighted_mean(const std::string& name, BatchFunction mean, BatchWeight weight);
// The same with the samples as weight: a mean over the samples.
Metric mean_over_samples(const std::string& name, BatchFunction mean);

// metric.sums of a batch, as [size] doubles on the device of the outputs. Throws TrainError, which
// names the metric, if there are not `size` numbers.
at::Tensor sums_of(const Metric& metric, const Outputs& outputs, const Batch& batch);

// The fraction of outputs whose largest value, along the last dimension, is at the index given by
// the target. A target of -100 does not count: cross_entropy_loss() takes it for padding.
Metric accuracy();

// The parameters of --generate.
struct Generation {
  std::string prompt;
  std::int64_t length = 200;  // tokens to add
  double temperature = 0.8;   // 0: always the likeliest
};

// One for a process. Several threads read the data sets at once; one thread uses everything else.
class Task {
 public:
  virtual ~Task() = default;

  virtual const Dataset& train_set() const = 0;
  virtual const Dataset& eval_set() const = 0;

  // A model with initial weights from the default generator: the same for the same seed.
  virtual std::shared_ptr<Model> make_model() const = 0;
  // The mean loss over the batch, as a tensor without dimensions. A task has this or losses().
  virtual at::Tensor loss(const at::Tensor& outputs, const at::Tensor& targets) const;
  // Their sum is the loss. If there are several, each is also a number of the step
  // (TrainingStep::log) and of evaluations.
  virtual std::vector<Loss> losses() const;
  // What the mean of a batch counts in the loss of a step and of an evaluation, over micro-batches
  // and ranks: with it, they are those of one big batch. All ranks have one or none has.
  virtual BatchWeight weight() const { return {}; }
  virtual std::vector<Metric> metrics() const { return {}; }

  // For language models: tokens of a sample, and floating-point operations of its forward and
  // backward. 0: not known.
  virtual std::int64_t tokens_per_sample() const { return 0; }
  virtual double flops_per_sample(const Model&) const { return 0; }

  // --generate and --predict, in a process that does not train, without gradients and with the
  // model in eval mode. Only called if TaskRegistration::generates or predicts is true. Throw
  // TrainError.
  virtual void generate(Model&, const Generation&, std::ostream&) const {
    throw TrainError("--generate is not implemented for this task");
  }
  virtual void predict(Model&, const std::filesystem::path&, std::ostream&) const {
    throw TrainError("--predict is not implemented for this task");
  }
};

// A row of the program's table of tasks.
struct TaskRegistration {
  std::string name;     // --task NAME
  std::string summary;  // for --help
  std::string models;   // the values of --model, for --help
  // "--lr", "0.001": of options that the user does not give.
  std::vector<std::pair<std::string, std::string>> defaults;
  // Throws TrainError for an invalid --model.
  std::function<void(const std::string& model)> check_model;
  // Of a valid --model, what a resume may not change though the shapes of the weights do not show
  // it: "heads=4". Empty: the whole text.
  std::function<std::string(const std::string& model)> identity_of_model = {};
  // Reads the data; throws TrainError, which names the file.
  std::function<std::unique_ptr<Task>(const TaskSettings&)> open;
  bool generates = false, predicts = false;           // the task implements generate(), predict()
  std::function<void(OptionTable&)> declare_options;  // adds the task's options; may be empty
  // For --lr-schedule NAME, in addition to the built-in ones.
  std::vector<CustomSchedule> lr_schedules = {};
};

}  // namespace torchbridge::train
