#include "trainer_template/runtime/run/run_parts.h"

#include <memory>
#include <utility>

#include <ATen/ops/allclose.h>
#include <torchbridge/model_tensors.h>

#include "bridge/base/message_text.h"
#include "trainer_template/runtime/backends/cuda_devices.h"
#include "trainer_template/runtime/training/compiled_model.h"
#include "trainer_template/runtime/training/peak_tflops.h"

namespace torchbridge::train {
namespace {

// Compares the package's first outputs with the model's: a package of another model may have
// tensors of the same names.
std::function<at::Tensor(const at::Tensor&)> compiled_forward(const Options& options, Model& model,
                                                              const ModelTensors& tensors,
                                                              ProcessGroup& group) {
  std::shared_ptr<CompiledModel> compiled;
  all_or_none(group, [&] {
    compiled = std::make_shared<CompiledModel>(options.compiled_eval, tensors, group.device());
  });
  return [compiled, &model, &options, compared = false](const at::Tensor& inputs) mutable {
    const at::Tensor outputs = compiled->forward(inputs);
    constexpr double kTolerance = 1e-3;
    if (!std::exchange(compared, true) &&
        !at::allclose(outputs, model.forward(inputs), kTolerance, kTolerance)) {
      throw TrainError(
          formatted("--compiled-eval '{}' computes other outputs than --model {}: compile the "
                    "package from this model",
                    options.compiled_eval, options.model));
    }
    return outputs;
  };
}

}  // namespace

std::optional<CommHook> comm_hook(const Options& options, Optimizer& optimizer,
                                  ProcessGroup& group) {
  if (auto of_optimizer = optimizer.comm_hook()) return of_optimizer;
  if (options.grad_comm == Precision::kBf16) return bf16_compress_hook(group);
  if (options.grad_comm == Precision::kFp16) return fp16_compress_hook(group);
  return std::nullopt;
}

double peak_of(const Options& options, const ProcessGroup& group) {
  const c10::Device device = group.device();
  if (options.peak_tflops || !device.is_cuda()) return options.peak_tflops.value_or(0);
  const CudaDevices devices = cuda_devices();
  const auto index = static_cast<std::size_t>(device.index());
  if (index >= devices.gpus.size()) return 0;
  return peak_tflops(devices.gpus[index].name, options.precision,
                     options.fp32_precision == Fp32Precision::kTf32)
      .value_or(0);
}

GradientClipping gradient_clipping(const Options& options, const ModelTensors& model,
                                   ProcessGroup& group) {
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
                               .forward = {},
                               .skipped = options.skipped_of("evaluation set", group)};
  if (!options.compiled_eval.empty())
    evaluation.forward = compiled_forward(options, model, tensors_of(model), group);
  return evaluation;
}

StepProfileOptions profile_options(const Options& options, const ProcessGroup& group) {
  return {.steps = group.is_first() ? options.profile : 0,
          .file = options.profile_file,
          .device = group.device().type()};
}

}  // namespace torchbridge::train
