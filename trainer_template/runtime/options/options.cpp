#include "trainer_template/runtime/options/options.h"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "bridge/core/init_method.h"
#include "bridge/launch/launch.h"
#include "trainer_template/runtime/base/errors.h"
#include "trainer_template/runtime/checkpoint_format/checkpoint_files.h"
#include "trainer_template/runtime/options/gpu_precision.h"

namespace torchbridge::train {
namespace {

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

}  // namespace

std::string Options::why_unsupported(const TaskRegistration& other) const {
  const auto reason = [&](bool TaskRegistration::*supports, const std::string& option) {
    std::string others;
    for (const TaskRegistration& each : kinds) {
      if (each.*supports) others += (others.empty() ? ": give --task " : " or ") + each.name;
    }
    return option + ": task '" + other.name + "' does not support it" + others;
  };
  if (!generate.empty() && !other.generates) return reason(&TaskRegistration::generates, "--generate");
  return !predict.empty() && !other.predicts ? reason(&TaskRegistration::predicts, "--predict") : "";
}

Order Options::sample_order() const {
  if (order == "permuted") return Order::kPermuted;
  return order == "sequential" ? Order::kSequential : Order::kShuffled;
}

GradientAverage Options::gradient_average() const {
  // --grad-comm is a hook of DDP's all-reduce, so it implies that.
  if (zero_gradients == "auto") return grad_comm == "fp32" ? GradientAverage::kAuto : GradientAverage::kDdp;
  return zero_gradients == "all-reduce" ? GradientAverage::kDdp : GradientAverage::kReduceScatter;
}

c10::ScalarType Options::autocast_type() const {
  if (precision == "fp32") return c10::kFloat;
  return precision == "bf16" ? c10::kBFloat16 : c10::kHalf;
}

AccumulationMean Options::mean_of_accumulation() const {
  return accumulation_mean == "batches" ? AccumulationMean::kBatches : AccumulationMean::kSamples;
}

NonFiniteOptions Options::non_finite() const {
  return {.on_nan = on_nan == "skip" ? OnNan::kSkip : OnNan::kStop,
          .scales_loss = precision == "fp16",
          .max_skips = max_skips};
}

GradScalerOptions Options::loss_scaling() const { return {.enabled = precision == "fp16", .init_scale = loss_scale}; }

LrSchedule Options::schedule(std::int64_t total_steps) const {
  LrSchedule parsed = *parse_lr_schedule(lr_schedule, kind->lr_schedules);
  parsed.warmup_steps = warmup_steps;
  parsed.total_steps = total_steps;
  return parsed;
}

GroupOptions Options::group() const {
  GroupOptions options;
  options.backend = backend == "auto" ? "" : backend;
  if (device == "cuda") options.device_id = c10::Device(c10::kCUDA);
  options.check_gpu = [precision = precision](const CudaGpu& gpu) { return check_precision(precision, gpu); };
  options.init_method = *parse_init_method(init_method);
  options.timeout = milliseconds(timeout_s);
  options.heartbeat_timeout = milliseconds(heartbeat_timeout_s);
  if (join_timeout_s) options.join_timeout = milliseconds(*join_timeout_s);
  return options;
}

PreemptionOptions Options::preemption(const EnvMap& environment) const {
  PreemptionOptions stopping{.saves = !checkpoints.folder.empty(), .is_reporter = presumed_rank(environment) == 0};
  const auto end = end_of_job(environment);
  if (end) stopping.end_of_job = *end;
  if (grace_s > 0) stopping.grace = std::chrono::seconds(grace_s);
  if (stop_before_limit_s == 0) return stopping;
  if (!end) throw EarlyExit(ExitCode::kBadOptions, end.error().message);
  if (!*end) {
    throw EarlyExit(ExitCode::kBadOptions,
                    "--stop-before-limit: the end of the job is not known, because SLURM_JOB_END_TIME is not set; "
                    "scripts/train.sbatch sets it where Slurm does not");
  }
  stopping.before_end = std::chrono::seconds(stop_before_limit_s);
  return stopping;
}

ProgressStyle Options::progress_style() const {
  if (quiet) return ProgressStyle::kNone;
  if (progress == "bar") return ProgressStyle::kBar;
  return progress == "lines" ? ProgressStyle::kLines : ProgressStyle::kAuto;
}

// With --resume PATH/step-N the run goes back to that checkpoint: newer ones may exist.
RunStart Options::run_start(const TrainState& start) const {
  std::error_code ignored;  // auto and none are not paths
  const auto named = std::filesystem::canonical(checkpoints.resume, ignored);
  return {.run = start.run, .step = start.step, .goes_back = step_of_folder(named.filename().string()).has_value()};
}

SamplerOptions Options::sampler(std::int64_t samples, const ProcessGroup& group) const {
  return {
      .size = samples, .world_size = group.world_size(), .rank = group.rank(), .seed = seed, .order = sample_order()};
}

LoaderOptions Options::loading(const ProcessGroup& group) const {
  return {.batch_size = batch_size, .workers = workers, .epochs = epochs, .device = group.device()};
}

std::map<std::string, std::string> Options::shown() const {
  std::map<std::string, std::string> all;
  for (const auto& [name, option] : chosen) {
    if (option.is_shown) all[name.substr(2)] = option.value;
  }
  return all;
}

}  // namespace torchbridge::train
