// A task: data, model, loss and metrics. This is the part that a user of the template writes.
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

// forward() maps the inputs of a batch to its outputs; the first dimension of both is the samples'.
class Model : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& inputs) = 0;
};

// The values of --data and --model.
struct TaskSettings {
  std::string data, model;
};

using BatchFunction = std::function<at::Tensor(const at::Tensor& outputs, const at::Tensor& targets)>;

// A number that evaluation computes in addition to the loss, from sums over samples. `sums` and `value` are called by
// the training thread, without gradients and with the model in eval mode; an exception ends the run.
struct Metric {
  std::string name;       // "f1": eval_f1 in metrics files
  std::int64_t size = 0;  // number of sums
  // The sums of a batch: `size` numbers of any type, in a tensor of any shape, on the device of the outputs.
  BatchFunction sums;
  // From the sums over all samples of all ranks: [size] doubles on the CPU. Called on each rank, with the same sums.
  std::function<double(const at::Tensor& sums)> value;
};

// The metric whose value is a mean over the samples. `mean` gives that of a batch, as a tensor without dimensions.
Metric mean_over_samples(const std::string& name, BatchFunction mean);

// metric.sums of a batch, as [size] doubles on the device of the outputs. Throws TrainError, which names the metric, if
// there are not `size` numbers.
at::Tensor sums_of(const Metric& metric, const at::Tensor& outputs, const at::Tensor& targets);

// The fraction of outputs whose largest value, along the last dimension, is at the index given by the target.
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
  // The mean loss over the batch, as a tensor without dimensions.
  virtual at::Tensor loss(const at::Tensor& outputs, const at::Tensor& targets) const = 0;
  virtual std::vector<Metric> metrics() const { return {}; }

  // For language models: tokens of a sample, and floating-point operations of its forward and backward. 0: not known.
  virtual std::int64_t tokens_per_sample() const { return 0; }
  virtual double flops_per_sample(const Model&) const { return 0; }

  // --generate and --predict, in a process that does not train, without gradients and with the model in eval mode. Only
  // called if TaskRegistration::generates or predicts is true. Throw TrainError.
  virtual void generate(Model&, const Generation&, std::ostream&) const {
    throw TrainError("--generate is not implemented for this task");
  }
  virtual void predict(Model&, const std::filesystem::path&, std::ostream&) const {
    throw TrainError("--predict is not implemented for this task");
  }
};

// A row of the program's table of tasks.
struct TaskRegistration {
  std::string name;                                           // --task NAME
  std::string summary;                                        // for --help
  std::string models;                                         // the values of --model, for --help
  std::vector<std::pair<std::string, std::string>> defaults;  // "--lr", "0.001": of options that the user does not give
  std::function<void(const std::string& model)> check_model;  // throws TrainError for an invalid --model
  // Reads the data; throws TrainError, which names the file.
  std::function<std::unique_ptr<Task>(const TaskSettings&)> open;
  bool generates = false, predicts = false;           // the task implements generate(), predict()
  std::function<void(OptionTable&)> declare_options;  // adds the task's options; may be empty
  std::vector<CustomSchedule> lr_schedules = {};      // for --lr-schedule NAME, in addition to the built-in ones
};

}  // namespace torchbridge::train
