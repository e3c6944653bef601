#include <chrono>

#include <torchbridge/errors.h>
#include <torchbridge/options.h>
#include <torchbridge/preemption.h>
#include <torchbridge/process_group.h>
#include <torchbridge/skipped_samples.h>

#include "bridge/base/message_text.h"
#include "bridge/base/visible_text.h"
#include "bridge/launch/launch.h"
#include "bridge/launch/launch_origin.h"
#include "trainer_template/runtime/backends/cuda.h"
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
    return formatted("{}: task '{}' does not support it{}", option, other.name, others);
  };
  if (!generate.empty() && !other.generates)
    return reason(&TaskRegistration::generates, "--generate");
  return !predict.empty() && !other.predicts ? reason(&TaskRegistration::predicts, "--predict")
                                             : "";
}

GradientAverage Options::gradient_average() const {
  // --grad-comm is a hook of DDP's all-reduce, so it implies that.
  const bool needs_ddp = zero_gradients == GradientAverage::kAuto && grad_comm != Precision::kFp32;
  return needs_ddp ? GradientAverage::kDdp : zero_gradients;
}

c10::ScalarType Options::autocast_type() const {
  if (precision == Precision::kFp32) return c10::kFloat;
  return precision == Precision::kBf16 ? c10::kBFloat16 : c10::kHalf;
}

GradScalerOptions Options::loss_scaling() const {
  return {
      .enabled = precision == Precision::kFp16, .checks = clip_norm == 0, .init_scale = loss_scale};
}

LrSchedule Options::schedule(std::int64_t total_steps, const StepScale& scale) const {
  LrSchedule parsed = parsed_schedule;
  parsed.warmup_steps = warmup_steps;
  parsed.scale = scale;
  parsed.total_steps = scale.count(total_steps);
  return parsed;
}

GroupOptions Options::group() const {
  GroupOptions options;
  options.backend = backend == "auto" ? "" : backend;
  const bool is_automatic = device == DeviceChoice::kAuto && backend == "auto";
  if (device == DeviceChoice::kCuda || (is_automatic && has_gpu()))
    options.device_id = c10::Device(c10::kCUDA);
  options.check_gpu = [chosen = Precision(precision)](const CudaGpu& gpu) {
    return check_precision(chosen, gpu);
  };
  options.init_method = parsed_init_method;
  options.timeout = milliseconds(timeout_s);
  options.heartbeat_timeout = milliseconds(heartbeat_timeout_s);
  if (join_timeout_s) options.join_timeout = milliseconds(*join_timeout_s);
  if (preemption) options.is_stopping = [stops = preemption] { return stops->requested(); };
  return options;
}

PreemptionOptions Options::stopping(const LaunchOrigin& origin) const {
  PreemptionOptions stopping{.saves = !checkpoints.folder.empty(), .is_reporter = origin.rank == 0};
  const auto end = end_of_job(origin.environment);
  if (end) stopping.end_of_job = *end;
  if (grace_s > 0) stopping.grace = std::chrono::seconds(grace_s);
  if (stop_before_limit_s == 0) return stopping;
  if (!end) throw EarlyExit(ExitCode::kBadOptions, end.error().message);
  if (!*end) {
    throw EarlyExit(ExitCode::kBadOptions,
                    "--stop-before-limit: the end of the job is not known, because "
                    "SLURM_JOB_END_TIME is not set; train.sbatch sets it where Slurm does not");
  }
  stopping.before_end = std::chrono::seconds(stop_before_limit_s);
  return stopping;
}

ProgressStyle Options::progress_style() const { return quiet ? ProgressStyle::kNone : progress; }

SamplerOptions Options::sampler(std::int64_t samples, const ProcessGroup& group) const {
  return {.size = samples,
          .world_size = group.world_size(),
          .rank = group.rank(),
          .seed = seed,
          .order = order,
          .drop_last = drop_last};
}

LoaderOptions Options::loading(const ProcessGroup& group) const {
  return {.batch_size = batch_size,
          .drop_last = drop_last,
          .workers = workers,
          .epochs = most_epochs(),
          .device = group.device(),
          .skipped = skipped_of("training set", group)};
}

std::shared_ptr<SkippedSamples> Options::skipped_of(const std::string& data_set,
                                                    const ProcessGroup& group) const {
  return skip_unreadable ? std::make_shared<SkippedSamples>(data_set, group.rank()) : nullptr;
}

std::map<std::string, std::string> Options::shown() const {
  std::map<std::string, std::string> all;
  for (const auto& [name, option] : chosen) {
    if (option.is_shown) all[name.substr(2)] = in_utf8(option.value);
  }
  return all;
}

}  // namespace torchbridge::train
