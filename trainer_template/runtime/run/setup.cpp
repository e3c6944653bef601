#include "trainer_template/runtime/run/setup.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/ops/allclose.h>

#include "trainer_template/runtime/backends/cuda_devices.h"
#include "trainer_template/runtime/base/errors.h"
#include "trainer_template/runtime/ddp/model_tensors.h"
#include "trainer_template/runtime/optim/parameter_groups.h"
#include "trainer_template/runtime/run/agreement.h"
#include "trainer_template/runtime/training/compiled_model.h"
#include "trainer_template/runtime/training/peak_tflops.h"

namespace torchbridge::train {
namespace {

// Compares the package's first outputs with the model's: a package of another model may have tensors of the same names.
std::function<at::Tensor(const at::Tensor&)> compiled_forward(const Options& options, Model& model,
                                                              const ModelTensors& tensors, ProcessGroup& group) {
  std::shared_ptr<CompiledModel> compiled;
  all_or_none(group,
              [&] { compiled = std::make_shared<CompiledModel>(options.compiled_eval, tensors, group.device()); });
  return [compiled, &model, &options, compared = false](const at::Tensor& inputs) mutable {
    const at::Tensor outputs = compiled->forward(inputs);
    constexpr double kTolerance = 1e-3;
    if (!std::exchange(compared, true) && !at::allclose(outputs, model.forward(inputs), kTolerance, kTolerance)) {
      throw TrainError("--compiled-eval '" + options.compiled_eval + "' computes other outputs than --model " +
                       options.model + ": compile the package from this model");
    }
    return outputs;
  };
}

}  // namespace

void seed_generators(const Options& options) { at::manual_seed(options.seed); }

std::unique_ptr<Task> open_task(const TaskRegistration& kind, const TaskSettings& settings, ProcessGroup& group) {
  std::unique_ptr<Task> task;
  all_or_none(group, [&] { task = kind.open(settings); });
  check_same_sizes(*task, settings.data, group);
  return task;
}

std::shared_ptr<Model> make_model(const Task& task, const std::string& model, ProcessGroup& group) {
  std::shared_ptr<Model> made;
  all_or_none(group, [&] {
    try {
      made = task.make_model();
      made->to(group.device());
    } catch (const c10::Error& error) {
      throw TrainError("--model " + model + " cannot be made: " + one_line(error));
    }
  });
  return made;
}

std::unique_ptr<Optimizer> make_optimizer(const Options& options, const ModelTensors& model, ProcessGroup& group) {
  const OptimizerOptions values{.lr = options.lr, .momentum = options.momentum, .weight_decay = options.weight_decay};
  const auto make = optimizer_kind(options.optimizer).make;
  const DecayRule rule{.exclude_1d = options.no_decay_1d, .excluded = options.no_decay};
  std::vector<ParameterGroup> groups = groups_by_decay(model.parameters, values, rule);
  if (options.zero == 0) return make(std::move(groups));
  return make_zero(std::move(groups), group, make, options.gradient_average());
}

std::optional<CommHook> comm_hook(const Options& options, Optimizer& optimizer, ProcessGroup& group) {
  if (auto of_optimizer = optimizer.comm_hook()) return of_optimizer;
  if (options.grad_comm == "bf16") return bf16_compress_hook(group);
  if (options.grad_comm == "fp16") return fp16_compress_hook(group);
  return std::nullopt;
}

double peak_of(const Options& options, const ProcessGroup& group) {
  const c10::Device device = group.device();
  if (options.peak_tflops || !device.is_cuda()) return options.peak_tflops.value_or(0);
  const CudaDevices devices = cuda_devices();
  const auto index = static_cast<std::size_t>(device.index());
  if (index >= devices.gpus.size()) return 0;
  return peak_tflops(devices.gpus[index].name, options.precision, options.fp32_precision).value_or(0);
}

GradientClipping gradient_clipping(const Options& options, const ModelTensors& model, ProcessGroup& group) {
  GradientClipping clipping{.max_norm = options.clip_norm, .parameters = {}};
  for (const auto& [name, parameter] : model.parameters) clipping.parameters.push_back(parameter);
  const bool is_written = !options.metrics.empty() || !options.tensorboard.empty();
  const bool is_wanted = is_written && !options.no_grad_norm && model.sparse_gradients.empty();
  clipping.is_measured = !group.broadcast(is_wanted ? "it is" : "").empty();
  return clipping;
}

EvaluationOptions evaluation_options(const Options& options, Model& model, ProcessGroup& group) {
  EvaluationOptions evaluation{.batch_size = options.batch_size,
                               .workers = options.workers,
                               .precision = options.autocast_type(),
                               .forward = {}};
  if (!options.compiled_eval.empty()) evaluation.forward = compiled_forward(options, model, tensors_of(model), group);
  return evaluation;
}

StepProfileOptions profile_options(const Options& options, const ProcessGroup& group) {
  return {
      .steps = group.is_first() ? options.profile : 0, .file = options.profile_file, .device = group.device().type()};
}

}  // namespace torchbridge::train
