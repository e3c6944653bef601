// The options of a trainer program, and their conversion into the options of each part of the
// runtime.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>
#include <torchbridge/checkpoint.h>
#include <torchbridge/data.h>
#include <torchbridge/group_options.h>
#include <torchbridge/lr_schedule.h>
#include <torchbridge/optimizer.h>
#include <torchbridge/option_table.h>
#include <torchbridge/sampler.h>
#include <torchbridge/settings.h>
#include <torchbridge/task.h>

namespace torchbridge {
struct LaunchOrigin;  // <torchbridge/launch.h>
}

namespace torchbridge::train {

class Preemption;          // <torchbridge/preemption.h>
struct PreemptionOptions;  // <torchbridge/preemption.h>

// The value of an option in this run.
struct ChosenOption {
  OnRanks on_ranks = OnRanks::kSame;
  bool is_shown = false, is_of_model = false;
  std::string value;  // as text; "set" or "not set" for OnRanks::kGiven
};

enum class Fp32Precision { kAuto, kIeee, kTf32 };
enum class DeviceChoice { kAuto, kCpu, kCuda };

// --help has the names, units and meanings. A task may set other defaults.
struct Options {
  std::string task, data, model;
  // By the user, not by the task's defaults.
  bool task_given = false, data_given = false, model_given = false, epochs_given = false;

  std::int64_t epochs = 10, max_steps = 0, batch_size = 32;
  std::string optimizer = "sgd";
  double lr = 0.1, momentum = 0.9;
  std::optional<double> weight_decay;  // not set: the optimizer's default
  std::string lr_schedule = "constant";
  LrSchedule parsed_schedule;  // of it, without the numbers of steps
  std::int64_t warmup_steps = 0;
  std::vector<std::string> no_decay;
  bool no_decay_1d = false;
  std::int64_t grad_accumulation = 1;
  OneOf<AccumulationMean> accumulation_mean{{"samples", "batches"}};
  double clip_norm = 0, loss_scale = 65536;
  OneOf<Precision> precision{{"fp32", "bf16", "fp16"}};
  OneOf<Fp32Precision> fp32_precision{{"auto", "ieee", "tf32"}};
  OneOf<OnNan> on_nan{{"stop", "skip"}};
  std::int64_t max_skips = 30;  // more than fp16's loss scale needs to fall from 65536 to 1e-4
  int zero = 0;
  OneOf<GradientAverage> zero_gradients{{"auto", "all-reduce", "reduce-scatter"}};
  OneOf<Precision> grad_comm{{"fp32", "bf16", "fp16"}};
  std::uint64_t seed = 0;
  bool seed_per_rank = false;
  OneOf<Order> order{{"shuffled", "permuted", "sequential"}};
  std::string init_from;
  bool skip_unreadable = false, drop_last = false;
  bool deterministic = false, cudnn_benchmark = false;
  std::int64_t early_stop = 0;

  CheckpointOptions checkpoints;
  OneOf<CheckpointOptions::OnPendingSave> on_pending_save{{"wait", "skip"}};
  double save_mb_per_s = 0;

  std::int64_t grace_s = 0, stop_before_limit_s = 0;

  std::string metrics, tensorboard, sample_log;
  std::int64_t log_every = 1;
  bool no_grad_norm = false;
  std::optional<double> peak_tflops;  // not set: the GPU's
  std::int64_t eval_every = 0;
  std::string compiled_eval;
  std::int64_t profile = 0;
  std::string profile_file = "trace.json";
  OneOf<ProgressStyle> progress{{"auto", "bar", "lines"}};
  bool quiet = false;

  std::string generate, predict;
  std::int64_t generate_length = 200;
  double temperature = 0.8;

  std::string backend = "auto";
  OneOf<DeviceChoice> device{{"auto", "cpu", "cuda"}};
  std::string init_method;
  InitMethod parsed_init_method;
  int workers = 1;
  double heartbeat_timeout_s = 4;
  double timeout_s = 600;
  std::optional<double> join_timeout_s;  // not set: GroupOptions' default

  std::span<const TaskRegistration> kinds;     // of the program
  const TaskRegistration* kind = nullptr;      // of `task`
  const Preemption* preemption = nullptr;      // what run_trainer() records; null: nothing stops
  std::map<std::string, ChosenOption> chosen;  // all options by name: "--lr"
  // Those that the user gave in vain: "--keep has no effect without --checkpoint-dir".
  std::vector<std::string> without_effect;

  TaskSettings task_settings() const { return {data, model}; }
  // Whether the number of epochs ends the run: --max-steps alone does it else.
  bool ends_by_epochs() const { return epochs_given || max_steps == 0; }
  // The epochs of the run, or more than it can have.
  std::int64_t most_epochs() const { return ends_by_epochs() ? epochs : 1'000'000'000; }
  bool is_inference() const { return !generate.empty() || !predict.empty(); }
  // Why tasks of this kind do not support --generate or --predict, with the tasks that do; empty if
  // they do.
  std::string why_unsupported(const TaskRegistration& other) const;
  GradientAverage gradient_average() const;  // of `zero_gradients` and `grad_comm`
  c10::ScalarType autocast_type() const;     // of `precision`; c10::kFloat: no autocast
  GradScalerOptions loss_scaling() const;
  LrSchedule schedule(std::int64_t total_steps, const StepScale& scale = {}) const;
  GroupOptions group() const;
  // Throws EarlyExit if --stop-before-limit needs the end of the job and the environment does not
  // contain it.
  PreemptionOptions stopping(const LaunchOrigin& origin) const;
  ProgressStyle progress_style() const;
  SamplerOptions sampler(std::int64_t samples, const ProcessGroup& group) const;
  LoaderOptions loading(const ProcessGroup& group) const;
  // Where a loader of that data set adds what cannot be read; null without `skip_unreadable`.
  std::shared_ptr<SkippedSamples> skipped_of(const std::string& data_set,
                                             const ProcessGroup& group) const;
  // The values that are shown at the start and kept in checkpoints, by name: "lr". In UTF-8.
  std::map<std::string, std::string> shown() const;
};

// The trainer's command line and TOML file. `kinds` must outlive the result; the first is the
// default of --task. Throws EarlyExit for --help, and for an unknown option or an invalid value,
// with the nearest valid name.
Options parse_command_line(int argc, char** argv, std::span<const TaskRegistration> kinds);

}  // namespace torchbridge::train
