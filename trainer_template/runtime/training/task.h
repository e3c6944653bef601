// What is learned: data, model, loss and what else is measured. The part that a user of the template writes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "trainer_template/runtime/base/errors.h"
#include "trainer_template/runtime/data/dataset.h"
#include "trainer_template/runtime/optim/lr_schedule.h"

namespace torchbridge::train {

class OptionTable;

// Inputs of a batch in, outputs for it out: the first dimension is the samples'.
class Model : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& inputs) = 0;
};

// What --data and --model say.
struct TaskSettings {
  std::string data, model;
};

using BatchFunction = std::function<at::Tensor(const at::Tensor& outputs, const at::Tensor& targets)>;

// What evaluation measures besides the loss: sums over samples, and a number that is made of them. `sums` and `value`
// are called without gradients, the model in eval mode, by the thread that trains; an exception ends the run.
struct Metric {
  std::string name;       // "f1": eval_f1 in metrics files
  std::int64_t size = 0;  // how many sums there are
  // The sums of a batch: `size` numbers of any type, in a tensor of any shape, on the device of the outputs.
  BatchFunction sums;
  // From the sums over all samples of all ranks: [size] doubles on the CPU. Called on each rank, with the same sums.
  std::function<double(const at::Tensor& sums)> value;
};

// The metric whose value is a mean over the samples. `mean` gives that of a batch, as a tensor without dimensions.
Metric mean_over_samples(const std::string& name, BatchFunction mean);

// metric.sums of a batch, as [size] doubles on the device of the outputs. Throws TrainError, which names the metric,
// where there are not `size`.
at::Tensor sums_of(const Metric& metric, const at::Tensor& outputs, const at::Tensor& targets);

// Share of the outputs whose largest value, along the last dimension, stands at the number that is the target.
Metric accuracy();

// Text that --generate goes on with.
struct Generation {
  std::string prompt;
  std::int64_t length = 200;  // tokens to add
  double temperature = 0.8;   // 0: always the likeliest
};

// One a process. Data sets are read by several threads at once, everything else is used by one.
class Task {
 public:
  virtual ~Task() = default;

  virtual const Dataset& train_set() const = 0;
  virtual const Dataset& eval_set() const = 0;

  // With fresh weights from the default generator, the same for the same seed.
  virtual std::shared_ptr<Model> make_model() const = 0;
  // The mean over the batch, as a tensor without dimensions.
  virtual at::Tensor loss(const at::Tensor& outputs, const at::Tensor& targets) const = 0;
  virtual std::vector<Metric> metrics() const { return {}; }

  // For language models: tokens of a sample, and what forward and backward of one sample take. 0: not told.
  virtual std::int64_t tokens_per_sample() const { return 0; }
  virtual double flops_per_sample(const Model&) const { return 0; }

  // --generate and --predict, in a process of its own, without gradients and the model in eval mode. Called where
  // TaskRegistration says so. Throws TrainError.
  virtual void generate(Model&, const Generation&, std::ostream&) const {
    throw TrainError("--generate is not written for this task");
  }
  virtual void predict(Model&, const std::filesystem::path&, std::ostream&) const {
    throw TrainError("--predict is not written for this task");
  }
};

// A row of the program's table of tasks.
struct TaskRegistration {
  std::string name;                                           // --task NAME
  std::string summary;                                        // for --help
  std::string models;                                         // what --model may be, for --help
  std::vector<std::pair<std::string, std::string>> defaults;  // "--lr", "0.001": of options that the user does not give
  std::function<void(const std::string& model)> check_model;  // throws TrainError for a --model that cannot be
  std::function<std::unique_ptr<Task>(const TaskSettings&)>
      open;                                           // reads the data; throws TrainError, which names the file
  bool generates = false, predicts = false;           // its tasks have generate(), predict()
  std::function<void(OptionTable&)> declare_options;  // of its own, whose values its tasks read; may be empty
  std::vector<CustomSchedule> lr_schedules = {};      // for --lr-schedule NAME, beside those of all tasks
};

}  // namespace torchbridge::train
