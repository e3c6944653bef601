#include <torchbridge/train/run/setup.h>

#include <ATen/Context.h>
#include <ATen/ops/allclose.h>
#include <torchbridge/core/env_map.h>
#include <torchbridge/net/random_token.h>
#include <torchbridge/train/checkpoint/load.h>
#include <torchbridge/train/checkpoint/resume_from_python.h>
#include <torchbridge/train/ddp/comm_hooks.h>
#include <torchbridge/train/errors.h>
#include <torchbridge/train/group/device_choice.h>
#include <torchbridge/train/model_tensors.h>
#include <torchbridge/train/optim/accumulation.h>
#include <torchbridge/train/optim/parameter_groups.h>
#include <torchbridge/train/run/agreement.h>
#include <torchbridge/train/run/compiled_model.h>
#include <torchbridge/train/run/peak_tflops.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace torchbridge::train {
namespace {

// A position in an epoch counts samples of one order.
void check_order(const Options& options, const Manifest& start) {
  const auto before = start.options.find("order");
  const std::string order = before == start.options.end() ? "shuffled" : before->second;
  if (start.position.consumed == 0 || order == options.order) return;
  throw TrainError("the checkpoint at step " + std::to_string(start.step) + " was written in an epoch with --order " + order +
                   ", this run has --order " + options.order + "; the order of samples would break off");
}

// And samples of one training set.
void check_train_set(const Options& options, const std::string& fingerprint, const Manifest& start) {
  if (start.position.consumed == 0 || start.train_set.empty() || fingerprint.empty() || fingerprint == start.train_set) return;
  const auto before = start.options.find("data");
  const std::string data = printable(options.shown().at("data")), data_then = before == start.options.end() ? "" : printable(before->second);
  throw TrainError("the checkpoint at step " + std::to_string(start.step) + " was written in an epoch of other training data of the same size" +
                   (data_then == data ? ", which --data " + data + " held then" : " (--data " + data_then + "), this run has --data " + data) +
                   "; samples would be left out or come twice");
}

// A finished epoch is the start of the next one; Python's samplers may have counted their padding.
void check_position(const SamplerOptions& sampler, const Manifest& start) {
  const std::int64_t most = std::max(sampler.size, samples_per_rank(sampler) * sampler.world_size);
  if (start.position.consumed <= most) return;
  throw TrainError("training stands " + std::to_string(start.position.consumed) + " samples into epoch " + std::to_string(start.position.epoch) +
                   " (epoch_samples_consumed), but an epoch of the training set has " + std::to_string(sampler.size) + ": is it another --data?");
}

void check_batch_size(const Options& options, std::int64_t samples, const ProcessGroup& group) {
  const std::int64_t most = (samples + group.world_size() - 1) / group.world_size();
  if (options.batch_size <= most) return;
  throw TrainError("--batch-size " + std::to_string(options.batch_size) + " is larger than the data set: " + std::to_string(samples) +
                   " samples, " + std::to_string(most) + " a rank");
}

// Its first outputs are compared with the model's: a package of another model may have tensors of the same names.
std::function<at::Tensor(const at::Tensor&)> compiled_forward(const Options& options, Model& model, const ModelTensors& tensors, ProcessGroup& group) {
  std::shared_ptr<CompiledModel> compiled;
  all_or_none(group, [&] { compiled = std::make_shared<CompiledModel>(options.compiled_eval, tensors, group.device()); });
  return [compiled, &model, &options, compared = false](const at::Tensor& inputs) mutable {
    const at::Tensor outputs = compiled->forward(inputs);
    constexpr double kTolerance = 1e-3;
    if (!std::exchange(compared, true) && !at::allclose(outputs, model.forward(inputs), kTolerance, kTolerance)) {
      throw TrainError("--compiled-eval '" + options.compiled_eval + "' computes something else than --model " + options.model);
    }
    return outputs;
  };
}

std::shared_ptr<Model> make_model(const Task& task, const std::string& model, c10::Device device) {
  try {
    auto made = task.make_model();
    made->to(device);
    return made;
  } catch (const c10::Error& error) {
    throw TrainError("--model " + model + " cannot be made: " + one_line(error));
  }
}

// 0: unknown.
double peak_of(const Options& options, c10::Device device) {
  if (options.peak_tflops || !device.is_cuda()) return options.peak_tflops.value_or(0);
  const CudaDevices devices = cuda_devices();
  const auto index = static_cast<std::size_t>(device.index());
  if (index >= devices.gpus.size()) return 0;
  return peak_tflops(devices.gpus[index].name, options.precision, options.fp32_precision).value_or(0);
}

// So does one of a training set of another size.
void check_train_samples(const Manifest& start, std::int64_t samples) {
  const auto before = start.state.find(kTrainSamples);
  if (start.position.consumed == 0 || before == start.state.end() || before->second == static_cast<double>(samples)) return;
  throw TrainError("the checkpoint at step " + std::to_string(start.step) + " was written in an epoch of " + std::to_string(std::llround(before->second)) +
                   " samples, this training set has " + std::to_string(samples) + "; samples would be left out or come twice");
}

}  // namespace

void seed_generators(const Options& options) { at::manual_seed(options.seed); }

void set_grad_comm(const Options& options, DistributedDataParallel& ddp, ProcessGroup& group) {
  if (options.grad_comm == "bf16") ddp.register_comm_hook(bf16_compress_hook(group));
  if (options.grad_comm == "fp16") ddp.register_comm_hook(fp16_compress_hook(group));
}

OpenTask open_task(const TaskKind& kind, const TaskSettings& settings, ProcessGroup& group) {
  OpenTask opened;
  all_or_none(group, [&] {
    opened.task = kind.open(settings);
    opened.model = make_model(*opened.task, settings.model, group.device());
  });
  check_same_sizes(*opened.task, settings.data, group);
  return opened;
}

std::unique_ptr<Optimizer> make_optimizer(const Options& options, const ModelTensors& model, ProcessGroup& group) {
  const OptimizerOptions values{.lr = options.lr, .momentum = options.momentum, .weight_decay = options.weight_decay};
  const auto make = [&](std::vector<ParameterGroup> groups) {
    if (options.optimizer == "adam") return make_adam(std::move(groups));
    return options.optimizer == "adamw" ? make_adamw(std::move(groups)) : make_sgd(std::move(groups));
  };
  const DecayRule rule{.spare_vectors = options.no_decay_1d, .spared = options.no_decay};
  std::vector<ParameterGroup> groups = groups_by_decay(model.parameters, values, rule);
  if (options.zero == 0) return make(std::move(groups));
  return make_zero(std::move(groups), group, make, options.gradient_average());
}

TrainerOptions trainer_options(const Options& options, Model& model, ProcessGroup& group, std::int64_t total_steps, StopAgreement& stop) {
  const ModelTensors tensors = tensors_of(model);
  TrainerOptions chosen{.schedule = options.schedule(), .clip_norm = options.clip_norm};
  chosen.schedule.total_steps = total_steps;
  const bool is_written = !options.metrics.empty() || !options.tensorboard.empty();
  const bool is_known = is_written && !options.no_grad_norm && tensors.sparse_gradients.empty();
  chosen.grad_norm = !group.broadcast(is_known ? "it is" : "").empty();  // with ZeRO it takes all ranks
  if (options.accumulation_mean == "batches") chosen.accumulation_mean = AccumulationMean::kBatches;
  chosen.scaler.init_scale = options.loss_scale;
  for (const auto& [name, parameter] : tensors.parameters) chosen.clipped.push_back(parameter);
  if (options.precision != "fp32") chosen.precision = options.precision == "bf16" ? at::kBFloat16 : at::kHalf;
  chosen.device = group.device().type();
  chosen.on_nan = options.on_nan == "skip" ? OnNan::kSkip : OnNan::kStop;
  chosen.max_skips = options.max_skips;
  chosen.peak_tflops = peak_of(options, group.device());
  chosen.stop = &stop;
  if (!options.compiled_eval.empty()) chosen.eval_forward = compiled_forward(options, model, tensors, group);
  return chosen;
}

Manifest load_start(const Options& options, Checkpoints& checkpoints, const ModelTensors& model, Optimizer& optimizer, ProcessGroup& group) {
  if (options.seed_per_rank) at::manual_seed(options.seed + static_cast<std::uint64_t>(group.rank()));
  if (!options.init_from.empty()) init_from(options.init_from, model, group);
  Manifest start;
  if (auto resumed = checkpoints.resume(model, optimizer)) {
    start = *std::move(resumed);
  } else if (!options.resume_from_python.empty()) {
    start = resume_from_python(options.resume_from_python, model, optimizer, group);
  }
  // From a checkpoint in another folder, which keeps its own run, a new one begins.
  const bool goes_on = !checkpoints.last_saved().empty();
  constexpr std::size_t kDigits = 8;
  start.run = group.broadcast(goes_on ? start.run : torchbridge::random_token().substr(0, kDigits));
  return start;
}

StepProfileOptions profile_options(const Options& options, const ProcessGroup& group) {
  return {.steps = group.is_first() ? options.profile : 0, .file = options.profile_file, .device = group.device().type()};
}

std::int64_t total_steps(const Options& options, const Dataset& train_set, const std::string& fingerprint, const Manifest& start, ProcessGroup& group) {
  std::int64_t all = start.step;
  const std::string of_rank_0 = group.broadcast(fingerprint);
  all_or_none(group, [&] {
    if (fingerprint != of_rank_0) throw TrainError("--data " + printable(options.data) + " holds other samples than rank 0's; all ranks need the same data");
    check_order(options, start);
    check_train_samples(start, train_set.size());
    check_train_set(options, fingerprint, start);
    check_position(options.sampler(train_set.size(), group), start);
    check_batch_size(options, train_set.size(), group);
    all += steps_left(options.sampler(train_set.size(), group), options.loading(group), start.position, options.grad_accumulation);
  });
  return options.max_steps > 0 ? std::max(start.step, std::min(all, options.max_steps)) : all;
}

}  // namespace torchbridge::train
