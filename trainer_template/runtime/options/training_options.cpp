// The options of what is learned, and how. The other ones: job_options.cpp.
#include <filesystem>

#include "trainer_template/runtime/base/number_text.h"
#include "trainer_template/runtime/optim/lr_schedule.h"
#include "trainer_template/runtime/optim/optimizer.h"
#include "trainer_template/runtime/options/option_checks.h"
#include "trainer_template/runtime/options/options.h"

namespace torchbridge::train {
namespace {

// A path means the same in whatever folder the next run begins; of what is no path nobody knows.
std::string from_everywhere(const std::string& data) {
  std::error_code error;
  return std::filesystem::exists(data, error) ? std::filesystem::absolute(data, error).lexically_normal().string()
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
  table.add("--task", &o.task, "What to learn; other defaults follow it. " + summaries,
            {.is_shown = true, .choices = names});
  table.add("--data", &o.data, "What to learn from",
            {.on_ranks = OnRanks::kOwn, .is_shown = true, .check = not_empty, .text = [&o] {
               return from_everywhere(o.data);
             }});
  table.add("--model", &o.model, "Its kind and sizes", {.is_shown = true});
  table.add("--init-from", &o.init_from, "Start from the weights in this safetensors or torch.save file",
            {.on_ranks = OnRanks::kGiven, .check = not_empty});
  for (const TaskRegistration& each : kinds) {
    if (each.declare_options) each.declare_options(table);
  }
}

// Of the task that is chosen, or of another one: which, is not known before the task is.
std::string check_lr_schedule(const std::string& text, std::span<const OwnSchedule> own) {
  const auto schedule = parse_lr_schedule(text, own);
  return schedule ? "" : schedule.error().message;
}

void declare_training(OptionTable& table, Options& o, std::span<const TaskRegistration> kinds) {
  std::vector<OwnSchedule> own;
  for (const TaskRegistration& each : kinds) own.insert(own.end(), each.lr_schedules.begin(), each.lr_schedules.end());
  table.begin_group("Training");
  table.add("--epochs", &o.epochs, "Times that each sample is taken", {.is_shown = true, .check = at_least(1)});
  table.add("--max-steps", &o.max_steps, "Stop after so many steps in all; 0: no limit",
            {.is_shown = true, .check = at_least(0)});
  table.add("--batch-size", &o.batch_size, "Samples a rank and step", {.is_shown = true, .check = at_least(1)});
  std::vector<std::string> optimizers;
  std::string weight_decays;
  for (const OptimizerKind& kind : optimizer_kinds()) {
    optimizers.push_back(kind.name);
    if (kind.weight_decay != 0) weight_decays += shortest(kind.weight_decay) + " for " + kind.name + ", ";
  }
  table.add("--optimizer", &o.optimizer, "What moves the weights", {.is_shown = true, .choices = optimizers});
  table.add("--lr", &o.lr, "Learning rate", {.is_shown = true, .check = not_negative});
  table.add("--lr-schedule", &o.lr_schedule, "KIND[:KEY=VALUE,...] (docs/use/optimizers.md): " + lr_schedule_kinds(own),
            {.is_shown = true, .check = [own](const std::string& text) { return check_lr_schedule(text, own); }});
  table.add("--warmup-steps", &o.warmup_steps, "Steps in which the learning rate rises",
            {.is_shown = true, .check = at_least(0)});
  table.add("--momentum", &o.momentum, "Of sgd", {.is_shown = true, .check = not_negative});
  table.add("--weight-decay", &o.weight_decay, "Pull of each step towards weights of 0",
            {.is_shown = true, .check = not_negative, .if_not_set = weight_decays + "else 0", .text = [&o] {
               return shortest(o.weight_decay.value_or(optimizer_kind(o.optimizer).weight_decay));
             }});
  table.add("--no-decay", &o.no_decay, "Parameters without weight decay: PATTERN,... such as *.bias");
  table.add("--no-decay-1d", &o.no_decay_1d, "Nor for parameters of at most one dimension");
  table.add("--grad-accumulation", &o.grad_accumulation, "Batches a step",
            {.is_shown = true, .check = whole_between(1, 1'000'000)});
  table.add("--accumulation-mean", &o.accumulation_mean,
            "Of their losses: over samples, or over batches, as if all had one size",
            {.choices = {"samples", "batches"}});
  table.add("--clip-norm", &o.clip_norm, "Largest norm of the gradients; 0: no limit",
            {.is_shown = true, .check = not_negative});
  table.add("--early-stop", &o.early_stop,
            "Stop after so many evaluations (--eval-every) without a lower loss; 0: never",
            {.is_shown = true, .check = at_least(0)});
  table.add("--on-nan", &o.on_nan, "A loss or gradient that is not finite, on any rank: stop, or skip the step",
            {.is_shown = true, .choices = {"stop", "skip"}});
  table.add("--max-skips", &o.max_skips,
            "Steps left out in a row, by that or by fp16's overflows, that end the run; 0: no limit",
            {.check = at_least(0)});
  table.add("--seed", &o.seed, "Of weights and order of samples", {.is_shown = true, .check = at_least(0)});
  table.add("--seed-per-rank", &o.seed_per_rank,
            "Dropout masks of each rank's own: the seed plus the rank, once the model is made", {.is_shown = true});
  table.add("--order", &o.order,
            "Of the samples: shuffled as Python does, permuted (without a list of all), sequential",
            {.is_shown = true, .choices = {"shuffled", "permuted", "sequential"}});
  table.add("--deterministic", &o.deterministic, "Refuse operations whose result may vary", {.is_shown = true});
}

void declare_precision(OptionTable& table, Options& o) {
  table.begin_group("Precision and memory");
  table.add("--precision", &o.precision, "Of forward and backward: fp32, bf16 or fp16 by autocast",
            {.is_shown = true, .choices = {"fp32", "bf16", "fp16"}});
  table.add("--fp32-precision", &o.fp32_precision,
            "Of products of fp32 on a GPU's tensor cores: ieee, tf32, or auto: Python's, tf32 in convolutions only",
            {.is_shown = true, .choices = {"auto", "ieee", "tf32"}});
  table.add("--cudnn-benchmark", &o.cudnn_benchmark,
            "Time cuDNN's convolutions for each new shape, and take the fastest", {.is_shown = true});
  table.add("--grad-comm", &o.grad_comm,
            "Type in which gradients are summed over the ranks: fp32, or bf16 or fp16, which halve the traffic",
            {.is_shown = true, .choices = {"fp32", "bf16", "fp16"}});
  table.add("--loss-scale", &o.loss_scale, "At the start, with fp16", {.check = number_between(1e-30, 1e30)});
  table.add("--zero", &o.zero, "1: the optimizer's state is spread over the ranks",
            {.is_shown = true, .choices = {"0", "1"}});
  table.add(
      "--zero-gradients", &o.zero_gradients,
      "Of --zero 1: all-reduce, reduce-scatter (each rank its part: half the traffic), or auto: all-reduce over gloo",
      {.choices = {"auto", "all-reduce", "reduce-scatter"}});
}

}  // namespace

void declare_options(OptionTable& table, Options& options, std::span<const TaskRegistration> kinds) {
  options.task = kinds.front().name;
  declare_task(table, options, kinds);
  declare_training(table, options, kinds);
  declare_precision(table, options);
  declare_job_options(table, options);
}

}  // namespace torchbridge::train
