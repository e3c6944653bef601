// The options of a trainer program, and their conversion into the options of each part of the runtime.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer_template/runtime/checkpoint/checkpoint.h"
#include "trainer_template/runtime/data/loader.h"
#include "trainer_template/runtime/data/sampler.h"
#include "trainer_template/runtime/optim/grad_scaler.h"
#include "trainer_template/runtime/optim/lr_schedule.h"
#include "trainer_template/runtime/optim/zero.h"
#include "trainer_template/runtime/options/option_table.h"
#include "trainer_template/runtime/output/progress.h"
#include "trainer_template/runtime/output/step_file.h"
#include "trainer_template/runtime/process_group/process_group.h"
#include "trainer_template/runtime/training/accumulation.h"
#include "trainer_template/runtime/training/non_finite.h"
#include "trainer_template/runtime/training/preemption.h"
#include "trainer_template/runtime/training/task.h"

namespace torchbridge::train {

// The value of an option in this run.
struct ChosenOption {
  OnRanks on_ranks = OnRanks::kSame;
  bool is_shown = false;
  std::string value;  // as text; "set" or "not set" for OnRanks::kGiven
};

// training_options.cpp and job_options.cpp (--help) have the names, units and meanings. A task may set other defaults.
struct Options {
  std::string task, data, model;
  bool task_given = false, data_given = false, model_given = false;  // by the user, not by the task's defaults

  std::int64_t epochs = 10, max_steps = 0, batch_size = 32;
  std::string optimizer = "sgd";
  double lr = 0.1, momentum = 0.9;
  std::optional<double> weight_decay;  // not set: the optimizer's default
  std::string lr_schedule = "constant";
  std::int64_t warmup_steps = 0;
  std::vector<std::string> no_decay;
  bool no_decay_1d = false;
  std::int64_t grad_accumulation = 1;
  std::string accumulation_mean = "samples";
  double clip_norm = 0, loss_scale = 65536;
  std::string precision = "fp32", fp32_precision = "auto", on_nan = "stop";
  std::int64_t max_skips = 30;  // more than fp16's loss scale needs to fall from 65536 to 1e-4
  int zero = 0;
  std::string zero_gradients = "auto", grad_comm = "fp32";
  std::uint64_t seed = 0;
  bool seed_per_rank = false;
  std::string order = "shuffled";
  std::string init_from, resume_from_python;
  bool deterministic = false, cudnn_benchmark = false;
  std::int64_t early_stop = 0;

  CheckpointOptions checkpoints;
  std::string on_pending_save = "wait";
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
  std::string progress = "auto";
  bool quiet = false;

  std::string generate, predict;
  std::int64_t generate_length = 200;
  double temperature = 0.8;

  std::string backend = "auto", device = "auto", init_method;
  int workers = 1;
  double heartbeat_timeout_s = 4;
  double timeout_s = 600;
  std::optional<double> join_timeout_s;  // not set: GroupOptions' default

  std::span<const TaskRegistration> kinds;     // of the program
  const TaskRegistration* kind = nullptr;      // of `task`
  std::map<std::string, ChosenOption> chosen;  // all options by name: "--lr"

  TaskSettings task_settings() const { return {data, model}; }
  bool is_inference() const { return !generate.empty() || !predict.empty(); }
  // Why tasks of this kind do not support --generate or --predict, with the tasks that do; empty if they do.
  std::string why_unsupported(const TaskRegistration& other) const;
  Order sample_order() const;                // of `order`
  GradientAverage gradient_average() const;  // of `zero_gradients` and `grad_comm`
  c10::ScalarType autocast_type() const;     // of `precision`; c10::kFloat: no autocast
  AccumulationMean mean_of_accumulation() const;
  NonFiniteOptions non_finite() const;
  GradScalerOptions loss_scaling() const;
  LrSchedule schedule(std::int64_t total_steps) const;
  GroupOptions group() const;
  // Throws EarlyExit if --stop-before-limit needs the end of the job and `environment` does not contain it.
  PreemptionOptions preemption(const EnvMap& environment) const;
  ProgressStyle progress_style() const;
  RunStart run_start(const TrainState& start) const;
  SamplerOptions sampler(std::int64_t samples, const ProcessGroup& group) const;
  LoaderOptions loading(const ProcessGroup& group) const;
  // The values that are shown at the start and kept in checkpoints, by name: "lr".
  std::map<std::string, std::string> shown() const;
};

// Declares every option of the trainer and of its tasks in the table. `options` must outlive it.
void declare_options(OptionTable& table, Options& options, std::span<const TaskRegistration> kinds);
// The part of declare_options() in job_options.cpp.
void declare_job_options(OptionTable& table, Options& options);

}  // namespace torchbridge::train
