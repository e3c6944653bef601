// Trains on all ranks of a job: the whole run, from options to the last line.
#include <torchbridge/core/env_map.h>
#include <torchbridge/train/checkpoint/checkpoint.h>
#include <torchbridge/train/checkpoint/fingerprint.h>
#include <torchbridge/train/data/loader.h>
#include <torchbridge/train/ddp/ddp.h>
#include <torchbridge/train/model_tensors.h>
#include <torchbridge/train/optim/accumulation.h>
#include <torchbridge/train/run/agreement.h>
#include <torchbridge/train/run/command_line.h>
#include <torchbridge/train/run/early_stop.h>
#include <torchbridge/train/run/inference.h>
#include <torchbridge/train/run/job.h>
#include <torchbridge/train/run/ledger.h>
#include <torchbridge/train/run/numerics.h>
#include <torchbridge/train/run/preemption.h>
#include <torchbridge/train/run/run_log.h>
#include <torchbridge/train/run/setup.h>
#include <torchbridge/train/run/step_profile.h>
#include <torchbridge/train/run/stop_agreement.h>
#include <torchbridge/train/run/trainer.h>

#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tasks.h"

using namespace torchbridge::train;

namespace {

bool due(std::int64_t step, std::int64_t every) { return every > 0 && step % every == 0; }

// The part of the job that the ranks do together: its parts in the order in which they are made, then the steps.
class Run {
 public:
  Run(const Options& options, ProcessGroup& group, const Preemption& preemption) : options_(options), group_(group), preemption_(preemption) {}
  // A stop on the way ends it as docs/preemption.md says.
  ExitCode train();

 private:
  void step();
  void evaluate(std::int64_t step);
  Manifest progress();
  ExitCode finish();
  ExitCode stopped();

  const Options& options_;
  ProcessGroup& group_;
  const Preemption& preemption_;
  const OpenTask opened_ = open_task(*options_.kind, options_.task_settings(), group_);
  const Task& task_ = *opened_.task;
  Model& model_ = *opened_.model;
  const ModelTensors tensors_ = tensors_of(model_);
  const std::unique_ptr<Optimizer> optimizer_ = make_optimizer(options_, tensors_, group_);
  Checkpoints checkpoints_{group_, options_.checkpoints};
  const Manifest start_ = load_start(options_, checkpoints_, tensors_, *optimizer_, group_);
  const std::string fingerprint_ = fingerprint_of(task_.train_set().contents());
  const std::int64_t steps_ = total_steps(options_, task_.train_set(), fingerprint_, start_, group_);
  DistributedDataParallel ddp_{tensors_, group_, {.gradient_as_bucket_view = true, .buckets = start_.buckets}};
  Loader loader_{task_.train_set(), options_.sampler(task_.train_set().size(), group_), options_.loading(group_), start_.position};
  StopAgreement stop_{group_, {.wants_to_stop = [this] { return preemption_.requested(); },
                               .has_data = [this](auto time) { return loader_.is_ready(options_.grad_accumulation, time); }}};
  Trainer trainer_{group_, task_, model_, ddp_, *optimizer_, trainer_options(options_, model_, group_, steps_, stop_), start_};
  EarlyStop early_stop_{options_.early_stop, start_.state};
  RunLog log_{options_, group_, tensors_, start_, steps_};
  StepProfile profile_{profile_options(options_, group_)};
  Ledger ledger_{group_, options_.ledger, options_.run_start(start_)};
  std::optional<Evaluation> result_;  // of the last step, where it was evaluated
};

ExitCode Run::train() {
  set_grad_comm(options_, ddp_, group_);
  if (trainer_.evaluation_is_due()) {  // the run before was stopped in it
    evaluate(start_.step);
    if (result_) log_.add(start_.step, *result_);
  }
  while (trainer_.steps_done() < steps_ && !early_stop_.is_due() && stop_.may_step()) {
    step();
    if (checkpoints_.due(trainer_.steps_done())) {
      checkpoints_.save(progress(), tensors_, *optimizer_);
      stop_.ask();  // rather than save again after the next step
    }
  }
  return finish();
}

void Run::step() {
  profile_.begin_step(trainer_.steps_done() + 1);
  const std::vector<Batch> parts = next_parts(loader_, options_.grad_accumulation);
  StepRecord step = trainer_.train_step(parts);
  ledger_.write(step, parts);
  result_.reset();
  if (due(step.step, options_.eval_every) || step.step == steps_) evaluate(step.step);
  step.evaluation = result_;
  log_.write(step);
}

void Run::evaluate(std::int64_t step) {
  result_ = trainer_.evaluate(task_.eval_set(), options_.batch_size);
  if (!result_ || !due(step, options_.eval_every)) return;
  trainer_.observe(*result_);
  early_stop_.observe(result_->loss, step);
}

Manifest Run::progress() {
  Manifest manifest = trainer_.progress();
  manifest.train_set = fingerprint_;
  manifest.state[kTrainSamples] = static_cast<double>(task_.train_set().size());
  early_stop_.put_state(manifest.state);
  return manifest;
}

ExitCode Run::finish() {
  if (!stop_.agreed() || trainer_.steps_done() > start_.step) checkpoints_.save_last(progress(), tensors_, *optimizer_);
  profile_.finish();
  const bool complete = trainer_.steps_done() == steps_ || early_stop_.is_due();
  if (complete && !result_) result_ = trainer_.evaluate(task_.eval_set(), options_.batch_size);
  if (!complete || !result_) return stopped();
  log_.finish(trainer_.steps_done(), *result_, trainer_.samples_per_s(), checkpoints_.last_saved(), early_stop_);
  ledger_.check_complete();
  return ExitCode::kDone;
}

// The ranks have agreed to stop: rank 0 says why.
ExitCode Run::stopped() {
  log_.stop(trainer_.steps_done(), group_.all_gather(preemption_.reason()), checkpoints_);
  return code_of_stop(checkpoints_.enabled(), static_cast<int>(-group_.minimum(-preemption_.signal())));
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
        set_numerics(options);
        return options.group();
      },
      [&](ProcessGroup& group) {
        check_same_options(options, group);
        if (!preemption) return run_inference(options, group), ExitCode::kDone;
        preemption->begin_work();
        seed_generators(options);
        const ExitCode code = Run(options, group, *preemption).train();
        if (code == ExitCode::kDone) preemption->complete();
        return code;
      });
}
