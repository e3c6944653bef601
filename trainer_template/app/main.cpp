// Trains a model on all ranks of a job. The part to copy: change model.*, data.* and what is chosen here.
#include <ATen/Context.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <torchbridge/train/optim/accumulation.h>
#include <torchbridge/train/checkpoint/checkpoint.h>
#include <torchbridge/train/ddp/ddp.h>
#include <torchbridge/train/errors.h>
#include <torchbridge/train/job.h>
#include <torchbridge/train/data/loader.h>
#include <torchbridge/train/metrics.h>
#include <torchbridge/train/model_tensors.h>
#include <torchbridge/train/optim/optimizer.h>
#include <torchbridge/train/optim/parameter_groups.h>
#include <torchbridge/train/progress.h>
#include <torchbridge/train/trainer.h>
#include <torchbridge/train/optim/zero.h>

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "config.h"
#include "data.h"
#include "model.h"

using namespace torchbridge::train;

namespace {

bool due(std::int64_t step, std::int64_t every) { return every > 0 && step % every == 0; }

std::unique_ptr<Optimizer> make_optimizer(const Config& config, const ModelTensors& model, ProcessGroup& group) {
  const OptimizerOptions options{.lr = config.lr, .momentum = config.momentum, .weight_decay = config.weight_decay};
  const auto make = [&](std::vector<ParameterGroup> groups) {
    if (config.optimizer == "adam") return make_adam(std::move(groups));
    return config.optimizer == "adamw" ? make_adamw(std::move(groups)) : make_sgd(std::move(groups));
  };
  const DecayRule rule{.spare_vectors = config.no_decay_1d, .spared = config.no_decay};
  std::vector<ParameterGroup> groups = groups_by_decay(model.parameters, options, rule);
  if (config.zero == 0) return make(std::move(groups));
  return make_zero(std::move(groups), group, make, config.gradient_average());
}

TrainerOptions trainer_options(const Config& config, const ModelTensors& model, std::int64_t total_steps) {
  TrainerOptions options{.schedule = config.schedule(), .clip_norm = config.clip_norm};
  options.schedule.total_steps = total_steps;
  options.scaler.init_scale = config.loss_scale;
  for (const auto& [name, parameter] : model.parameters) options.clipped.push_back(parameter);
  if (config.precision != "fp32") options.precision = config.precision == "bf16" ? at::kBFloat16 : at::kHalf;
  return options;
}

// A position in an epoch counts samples of one order.
void check_order(const Config& config, const Manifest& start) {
  const auto before = start.options.find("order");
  const std::string order = before == start.options.end() ? "shuffled" : before->second;
  if (start.position.consumed == 0 || order == config.order) return;
  throw TrainError("the checkpoint at step " + std::to_string(start.step) + " was written in an epoch with --order " + order +
                   ", this run has --order " + config.order + "; the order of samples would break off");
}

void print_settings(const Config& config, const ProcessGroup& group, const Manifest& start,
                    std::int64_t total_steps) {
  const auto counted = [](int count, const std::string& what) {
    return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
  };
  std::string text = "trainer: " + counted(group.world_size(), "rank") + " on " +
                     counted(group.layout().node_count, "node") + " (" + group.launcher() + ", " + group.backend() + ")";
  for (const auto& [name, value] : config.shown()) text += " " + name + "=" + value;
  if (start.step > 0) text += "; goes on from step " + std::to_string(start.step) + " of " + std::to_string(total_steps);
  if (start.step == total_steps) text += ": it is complete";
  std::puts(text.c_str());
  std::fflush(stdout);
}

void print_summary(std::int64_t steps, const Evaluation& result, double samples_per_s, const Checkpoints& checkpoints) {
  const std::string& saved = checkpoints.last_saved().string();
  std::printf("trainer: %lld steps, accuracy %.4f, loss %.4f, %.0f samples/s%s%s\n", static_cast<long long>(steps),
              result.accuracy, result.loss, samples_per_s, saved.empty() ? "" : ", checkpoint ", saved.c_str());
  std::fflush(stdout);
}

// Batch normalisation takes its running statistics then.
Evaluation evaluate(Trainer& trainer, Model& model, const Images& images, std::int64_t batch_size) {
  model.eval();
  const Evaluation result = trainer.evaluate(images, batch_size);
  model.train();
  return result;
}

void train(const Config& config, ProcessGroup& group) {
  at::manual_seed(config.seed);
  at::globalContext().setDeterministicAlgorithms(config.deterministic, /*warn_only=*/false);

  std::unique_ptr<Images> train_set, test_set;
  all_or_none(group, [&] {
    train_set = std::make_unique<Images>(config.data, "train");
    test_set = std::make_unique<Images>(config.data, "t10k");
    train_set->check_fits(*test_set, config.data);
  });
  const auto model = make_model(config.model_spec(), {train_set->rows(), train_set->columns(), train_set->classes()});
  model->to(group.device());
  const ModelTensors tensors = tensors_of(*model);
  const auto optimizer = make_optimizer(config, tensors, group);

  Checkpoints checkpoints(group, config.checkpoints);
  if (!config.init_from.empty()) init_from(config.init_from, tensors, group);
  const Manifest start = checkpoints.resume(tensors, *optimizer).value_or(Manifest{});

  all_or_none(group, [&] { check_order(config, start); });

  const SamplerOptions sampler{
      .size = train_set->size(), .world_size = group.world_size(), .rank = group.rank(), .seed = config.seed,
      .order = config.sample_order()};
  const LoaderOptions loading{.batch_size = config.batch_size, .workers = config.workers, .epochs = config.epochs};
  std::int64_t total_steps = start.step + steps_left(sampler, loading, start.position, config.grad_accumulation);
  if (config.max_steps > 0) total_steps = std::max(start.step, std::min(total_steps, config.max_steps));

  DistributedDataParallel ddp(tensors, group, {.buckets = start.buckets});
  Trainer trainer(group, ddp, *optimizer,
                  {.forward = [&](const at::Tensor& inputs) { return model->forward(inputs.to(group.device())); },
                   .loss = [](const at::Tensor& outputs, const at::Tensor& targets) {
                     return at::cross_entropy_loss(outputs, targets.to(outputs.device()));
                   }},
                  trainer_options(config, tensors, total_steps), start);
  std::unique_ptr<MetricsFile> metrics;
  all_or_none(group, [&] {
    metrics = std::make_unique<MetricsFile>(group.is_first() ? config.metrics : "", start.step);
  });
  Progress progress(group.is_first() ? config.progress_style() : ProgressStyle::kNone, total_steps);
  if (group.is_first() && !config.quiet) print_settings(config, group, start, total_steps);

  Loader loader(*train_set, sampler, loading, start.position);
  std::optional<Evaluation> result;
  while (trainer.steps_done() < total_steps) {
    StepRecord step = trainer.train_step(next_parts(loader, config.grad_accumulation));
    if (due(step.step, config.eval_every) || step.step == total_steps) {
      result = step.evaluation = evaluate(trainer, *model, *test_set, config.batch_size);
    }
    if (due(step.step, config.eval_every)) trainer.observe(*result);
    metrics->write(step);
    progress.show(step);
    if (checkpoints.due(step.step)) checkpoints.save(trainer.progress(), tensors, *optimizer);
  }
  checkpoints.save(trainer.progress(), tensors, *optimizer);

  progress.finish();
  if (!result) result = evaluate(trainer, *model, *test_set, config.batch_size);
  if (group.is_first()) print_summary(total_steps, *result, trainer.samples_per_s(), checkpoints);
}

}  // namespace

int main(int argc, char** argv) {
  Config config;
  return run_job(
      torchbridge::EnvMap::from(environ),
      [&] {
        config = parse_config(argc, argv);
        return config.group();
      },
      [&](ProcessGroup& group) { train(config, group); });
}
