// The options of task and training. All others are in job_options.cpp.
#include <filesystem>

#include <torchbridge/lr_schedule.h>
#include <torchbridge/optimizer.h>
#include <torchbridge/option_table.h>
#include <torchbridge/options.h>

#include "bridge/base/message_text.h"
#include "trainer_template/runtime/base/number_text.h"
#include "trainer_template/runtime/options/declare_options.h"

namespace torchbridge::train {
namespace {

// An existing path becomes absolute, so that a checkpoint's --data is valid in any working folder.
// Other values are kept: the task may give them another meaning.
std::string absolute_if_exists(const std::string& data) {
  std::error_code error;
  return std::filesystem::exists(data, error)
             ? std::filesystem::absolute(data, error).lexically_normal().string()
             : data;
}

void declare_task(OptionTable& table, Options& o, std::span<const TaskRegistration> kinds) {
  table.begin_group("Task, model and data");
  std::string summaries;
  std::vector<std::string> names;
  for (const TaskRegistration& each : kinds) {
    summaries += (summaries.empty() ? "" : "; ") + each.name + ": " + each.summary;
    names.push_back(each.name);
  }
  table.add("--task", &o.task, "The task; it sets the defaults of other options. " + summaries,
            {.is_shown = true, .choices = names});
  table.add("--data", &o.data, "The task's data",
            {.on_ranks = OnRanks::kOwn, .is_shown = true, .check = not_empty, .text = [&o] {
               return absolute_if_exists(o.data);
             }});
  table.add("--model", &o.model, "Kind and sizes of the model",
            {.is_shown = true, .is_of_model = true});
  table.add("--init-from", &o.init_from, "Start from the weights in this safetensors file",
            {.on_ranks = OnRanks::kGiven, .check = not_empty});
  for (const TaskRegistration& each : kinds) {
    if (each.declare_options) each.declare_options(table);
  }
}

// Accepts the schedules of all tasks: the task is not known yet when the option is checked.
std::string check_lr_schedule(const std::string& text, std::span<const CustomSchedule> own) {
  const auto schedule = parse_lr_schedule(text, own);
  return schedule ? "" : schedule.error().message;
}

void declare_training(OptionTable& table, Options& o, std::span<const TaskRegistration> kinds) {
  std::vector<CustomSchedule> own;
  for (const TaskRegistration& each : kinds)
    own.insert(own.end(), each.lr_schedules.begin(), each.lr_schedules.end());
  table.begin_group("Training");
  table.add("--epochs", &o.epochs, "Passes over the training data; with --max-steps alone no limit",
            {.is_shown = true, .check = at_least(1), .default_yields = true, .text = [&o] {
               return o.ends_by_epochs() ? std::to_string(o.epochs) : "no limit";
             }});
  table.add("--max-steps", &o.max_steps, "Stop after so many steps in total; 0: no limit",
            {.is_shown = true, .check = at_least(0)});
  table.add("--batch-size", &o.batch_size, "Samples in a batch of one rank",
            {.is_shown = true, .check = at_least(1)});
  std::vector<std::string> optimizers;
  std::string weight_decays;
  for (const OptimizerKind& kind : optimizer_kinds()) {
    optimizers.push_back(kind.name);
    if (kind.weight_decay != 0)
      weight_decays += formatted("{} for {}, ", shortest(kind.weight_decay), kind.name);
  }
  table.add("--optimizer", &o.optimizer, "Optimizer", {.is_shown = true, .choices = optimizers});
  table.add("--lr", &o.lr, "Learning rate", {.is_shown = true, .check = not_negative});
  table.add("--lr-schedule", &o.lr_schedule,
            formatted("KIND[:KEY=VALUE,...] (docs/use/optimizers.md): {}", lr_schedule_kinds(own)),
            {.is_shown = true,
             .check = [own](const std::string& text) { return check_lr_schedule(text, own); }});
  table.add("--warmup-steps", &o.warmup_steps, "Steps of linear warm-up of the learning rate",
            {.is_shown = true, .check = at_least(0)});
  table.add("--momentum", &o.momentum, "Momentum of sgd",
            {.is_shown = true, .check = not_negative});
  table.add("--weight-decay", &o.weight_decay, "Weight decay",
            {.is_shown = true,
             .check = not_negative,
             .if_not_set = weight_decays + "else 0",
             .text = [&o] {
               return shortest(o.weight_decay.value_or(optimizer_kind(o.optimizer).weight_decay));
             }});
  table.add("--no-decay", &o.no_decay,
            "Parameters without weight decay: PATTERN,... such as *.bias");
  table.add("--no-decay-1d", &o.no_decay_1d,
            "No weight decay for parameters of at most one dimension");
  table.add("--grad-accumulation", &o.grad_accumulation,
            "Micro-batches (batches of --batch-size) in a step",
            {.is_shown = true, .check = whole_between(1, 1'000'000)});
  table.add("--accumulation-mean", &o.accumulation_mean,
            "Mean of the micro-batches' losses: over samples, or over batches, as if all had the "
            "same size");
  table.add("--clip-norm", &o.clip_norm,
            "Norm to which larger gradients are clipped; 0: no clipping",
            {.is_shown = true, .check = not_negative});
  table.add("--early-stop", &o.early_stop,
            "Stop after so many evaluations (--eval-every) without a lower loss; 0: never",
            {.is_shown = true, .check = at_least(0)});
  table.add("--on-nan", &o.on_nan,
            "For a loss or gradient that is not finite on any rank: stop the job, or skip the step",
            {.is_shown = true});
  table.add("--max-skips", &o.max_skips,
            "Skipped steps in a row, by --on-nan skip or by overflows with fp16, that end the run; "
            "0: no limit",
            {.check = at_least(0)});
  table.add("--seed", &o.seed, "Seed of the initial weights and of the order of samples",
            {.is_shown = true, .check = at_least(0)});
  table.add(
      "--seed-per-rank", &o.seed_per_rank,
      "Other dropout masks on each rank: once the model is made, the seed is --seed plus the rank",
      {.is_shown = true});
  table.add("--order", &o.order,
            "Order of samples: shuffled as Python does, permuted (without a list of all indices), "
            "sequential",
            {.is_shown = true});
  table.add("--drop-last", &o.drop_last,
            "Drop the samples at the end of an epoch that make no full batch on each rank",
            {.is_shown = true});
  table.add("--skip-unreadable", &o.skip_unreadable,
            "Leave out samples that cannot be read, and print each once: another one of the batch "
            "takes its place",
            {.is_shown = true});
  table.add("--deterministic", &o.deterministic, "Fail on operations whose results may vary",
            {.is_shown = true});
}

void declare_precision(OptionTable& table, Options& o) {
  table.begin_group("Precision and memory");
  table.add("--precision", &o.precision,
            "Precision of forward and backward: fp32, or bf16 or fp16 by autocast",
            {.is_shown = true});
  table.add("--fp32-precision", &o.fp32_precision,
            "Precision of fp32 products on a GPU: ieee, tf32, or auto: Python's default, tf32 in "
            "convolutions only",
            {.is_shown = true});
  table.add("--cudnn-benchmark", &o.cudnn_benchmark,
            "Measure cuDNN's convolution algorithms for each new shape, and use the fastest",
            {.is_shown = true});
  table.add(
      "--grad-comm", &o.grad_comm,
      "Data type of the gradients' all-reduce: fp32, or bf16 or fp16, which halve the traffic",
      {.is_shown = true});
  table.add("--loss-scale", &o.loss_scale, "Initial loss scale, with fp16",
            {.check = number_between(1e-30, 1e30)});
  table.add("--zero", &o.zero, "1: shard the optimizer's state over the ranks (ZeRO stage 1)",
            {.is_shown = true, .choices = {"0", "1"}});
  table.add("--zero-gradients", &o.zero_gradients,
            "With --zero 1: all-reduce, reduce-scatter (each rank its shard: half the traffic), or "
            "auto: all-reduce over gloo");
}

}  // namespace

void declare_options(OptionTable& table, Options& options,
                     std::span<const TaskRegistration> kinds) {
  options.task = kinds.front().name;
  declare_task(table, options, kinds);
  declare_training(table, options, kinds);
  declare_precision(table, options);
  declare_job_options(table, options);
}

}  // namespace torchbridge::train
