// Trains on all ranks of a job: the whole run, from options to the last line.
#include <torchbridge/core/env_map.h>
#include <torchbridge/train/checkpoint/checkpoint.h>
#include <torchbridge/train/data/loader.h>
#include <torchbridge/train/ddp/ddp.h>
#include <torchbridge/train/model_tensors.h>
#include <torchbridge/train/optim/accumulation.h>
#include <torchbridge/train/run/command_line.h>
#include <torchbridge/train/run/early_stop.h>
#include <torchbridge/train/run/inference.h>
#include <torchbridge/train/run/job.h>
#include <torchbridge/train/run/run_log.h>
#include <torchbridge/train/run/setup.h>
#include <torchbridge/train/run/step_profile.h>
#include <torchbridge/train/run/trainer.h>

#include <unistd.h>

#include <memory>
#include <optional>

#include "tasks.h"

using namespace torchbridge::train;

namespace {

bool due(std::int64_t step, std::int64_t every) { return every > 0 && step % every == 0; }

void train(const Options& options, ProcessGroup& group) {
  set_determinism(options);
  std::unique_ptr<Task> task;
  std::shared_ptr<Model> model;
  all_or_none(group, [&] {
    task = options.kind->open(options.task_settings());
    model = make_model(*task, options.model, group.device());
  });
  const ModelTensors tensors = tensors_of(*model);
  const auto optimizer = make_optimizer(options, tensors, group);

  Checkpoints checkpoints(group, options.checkpoints);
  const Manifest start = load_start(options, checkpoints, tensors, *optimizer, group);
  std::int64_t steps = 0;
  all_or_none(group, [&] { steps = total_steps(options, task->train_set(), start, group); });

  DistributedDataParallel ddp(tensors, group, {.gradient_as_bucket_view = true, .buckets = start.buckets});
  Trainer trainer(group, *task, *model, ddp, *optimizer, trainer_options(options, *model, tensors, group, steps), start);
  EarlyStop early_stop(options.early_stop, start.state);
  RunLog log(options, group, start, steps);
  StepProfile profile(profile_options(options, group));
  Loader loader(task->train_set(), options.sampler(task->train_set().size(), group), options.loading(group), start.position);

  const auto progress = [&] {
    Manifest manifest = trainer.progress();
    early_stop.put_state(manifest.state);
    return manifest;
  };
  std::optional<Evaluation> result;
  while (trainer.steps_done() < steps && !early_stop.is_due()) {
    profile.begin_step(trainer.steps_done() + 1);
    StepRecord step = trainer.train_step(next_parts(loader, options.grad_accumulation));
    if (due(step.step, options.eval_every) || step.step == steps) {
      result = step.evaluation = trainer.evaluate(task->eval_set(), options.batch_size);
    }
    if (due(step.step, options.eval_every)) {
      trainer.observe(*result);
      early_stop.observe(result->loss, step.step);
    }
    log.write(step);
    if (checkpoints.due(step.step)) checkpoints.save(progress(), tensors, *optimizer);
  }
  checkpoints.save_last(progress(), tensors, *optimizer);
  profile.finish();
  if (!result) result = trainer.evaluate(task->eval_set(), options.batch_size);
  log.finish(trainer.steps_done(), *result, trainer.samples_per_s(), checkpoints.last_saved());
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  return run_job(
      torchbridge::EnvMap::from(environ),
      [&] {
        options = parse_command_line(argc, argv, task_kinds());
        return options.group();
      },
      [&](ProcessGroup& group) { options.is_inference() ? run_inference(options, group) : train(options, group); });
}
