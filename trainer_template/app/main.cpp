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
#include <torchbridge/train/run/ledger.h>
#include <torchbridge/train/run/preemption.h>
#include <torchbridge/train/run/run_log.h>
#include <torchbridge/train/run/setup.h>
#include <torchbridge/train/run/step_profile.h>
#include <torchbridge/train/run/stop_agreement.h>
#include <torchbridge/train/run/trainer.h>

#include <unistd.h>

#include <memory>
#include <optional>
#include <vector>

#include "tasks.h"

using namespace torchbridge::train;

namespace {

bool due(std::int64_t step, std::int64_t every) { return every > 0 && step % every == 0; }

// What is left to do when the ranks have agreed to stop: rank 0 says so.
ExitCode stopped(ProcessGroup& group, const Preemption& preemption, RunLog& log, std::int64_t step, const Checkpoints& checkpoints) {
  log.stop(step, group.all_gather(preemption.reason()), checkpoints);
  return code_of_stop(checkpoints.enabled(), static_cast<int>(-group.minimum(-preemption.signal())));
}

// The part of the job that the ranks do together. A stop on the way ends it as docs/preemption.md says.
ExitCode train(const Options& options, ProcessGroup& group, Preemption& preemption) {
  preemption.begin_work();
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
  Loader loader(task->train_set(), options.sampler(task->train_set().size(), group), options.loading(group), start.position);
  StopAgreement stop(group, {.wants_to_stop = [&] { return preemption.requested(); },
                             .has_data = [&](auto time) { return loader.is_ready(options.grad_accumulation, time); }});
  TrainerOptions chosen = trainer_options(options, *model, tensors, group, steps);
  chosen.stop = &stop;
  Trainer trainer(group, *task, *model, ddp, *optimizer, chosen, start);
  EarlyStop early_stop(options.early_stop, start.state);
  RunLog log(options, group, start, steps);
  StepProfile profile(profile_options(options, group));
  Ledger ledger(group, options.ledger, start.step);

  const auto progress = [&] {
    Manifest manifest = trainer.progress();
    early_stop.put_state(manifest.state);
    return manifest;
  };
  std::optional<Evaluation> result;  // of the last step, where it was evaluated
  const auto evaluate = [&](std::int64_t step) {
    result = trainer.evaluate(task->eval_set(), options.batch_size);
    if (!result || !due(step, options.eval_every)) return;
    trainer.observe(*result);
    early_stop.observe(result->loss, step);
  };
  if (trainer.evaluation_is_due()) {
    evaluate(start.step);
    if (result) log.add(start.step, *result);
  }
  while (trainer.steps_done() < steps && !early_stop.is_due() && stop.may_step()) {
    profile.begin_step(trainer.steps_done() + 1);
    const std::vector<Batch> parts = next_parts(loader, options.grad_accumulation);
    StepRecord step = trainer.train_step(parts);
    ledger.write(step, parts);
    result.reset();
    if (due(step.step, options.eval_every) || step.step == steps) evaluate(step.step);
    step.evaluation = result;
    log.write(step);
    if (checkpoints.due(step.step)) {
      checkpoints.save(progress(), tensors, *optimizer);
      stop.ask();  // rather than save again after the next step
    }
  }
  if (!stop.agreed() || trainer.steps_done() > start.step) checkpoints.save_last(progress(), tensors, *optimizer);
  profile.finish();
  const bool complete = trainer.steps_done() == steps || early_stop.is_due();
  if (complete && !result) result = trainer.evaluate(task->eval_set(), options.batch_size);
  if (!complete || !result) return stopped(group, preemption, log, trainer.steps_done(), checkpoints);
  log.finish(trainer.steps_done(), *result, trainer.samples_per_s(), checkpoints.last_saved(), early_stop);
  return ExitCode::kDone;
}

}  // namespace

int main(int argc, char** argv) {
  const auto environment = torchbridge::EnvMap::from(environ);
  Options options;
  std::optional<Preemption> preemption;
  return run_job(
      environment,
      [&] {
        options = parse_command_line(argc, argv, task_kinds());
        if (!options.is_inference()) preemption.emplace(options.preemption(environment));
        return options.group();
      },
      [&](ProcessGroup& group) {
        if (preemption) return train(options, group, *preemption);
        run_inference(options, group);
        return ExitCode::kDone;
      });
}
