// Trains on all ranks of a job: the whole run, from options to the last line. This file is meant to be copied and
// changed.
#include <torchbridge/training.h>

#include "tasks.h"

using namespace torchbridge::train;

namespace {

bool due(std::int64_t step, std::int64_t every) { return every > 0 && step % every == 0; }

ExitCode train(const Options& options, ProcessGroup& group, const Preemption& preemption) {
  // All ranks must execute these lines in one order: those with `group`, saves, sample_log and stop are collectives.
  const auto task = open_task(*options.kind, options.task_settings(), group);
  const Dataset& train_set = task->train_set();
  const auto model = make_model(*task, options.model, group);
  const ModelTensors tensors = tensors_of(*model);
  const auto optimizer = make_optimizer(options, tensors, group);
  Checkpoints checkpoints(group, options.checkpoints);
  TrainState state = load_or_begin(options, train_set, tensors, *optimizer, checkpoints, group);
  const std::int64_t first_step = state.step, last_step = total_steps(options, train_set, state, group);
  DistributedDataParallel ddp(
      tensors, group,
      {.gradient_as_bucket_view = true, .comm_hook = comm_hook(options, *optimizer, group), .buckets = state.buckets});
  Loader loader(train_set, options.sampler(train_set.size(), group), options.loading(group), state.position);
  LearningRates learning_rates(options.schedule(last_step), *optimizer, state.plateau);
  GradScaler scaler(options.loss_scaling(), group.device(), state.grad_scaler);
  const GradientClipping clipping = gradient_clipping(options, tensors, group);
  NonFinite non_finite(options.non_finite(), model->buffers(), state.skips, group);
  const EvaluationOptions evaluating = evaluation_options(options, *model, group);
  EarlyStop early_stop(options.early_stop, state.early_stop);
  StopAgreement stop(group, {.wants_to_stop = [&] { return preemption.requested(); },
                             .has_data = [&](auto time) { return loader.is_ready(options.grad_accumulation, time); }});
  RunLog log(options, group, tensors, state, last_step);
  StepProfile profile(profile_options(options, group));
  SampleLog sample_log(group, options.sample_log, options.run_start(state));
  Throughput throughput(*task, *model, ddp, group.world_size(), peak_of(options, group), state);
  StepReader reader(group.device());
  std::optional<Evaluation> evaluation;  // of the latest step, if it was evaluated

  const auto evaluate_now = [&] {
    const Throughput::Pause pause(throughput);
    evaluation = evaluate(*model, *task, ddp, evaluating, stop, group);
    state.evaluation_is_due = !evaluation;  // it was stopped: the next start repeats it before its first step
    if (!evaluation || !due(state.step, options.eval_every)) return;
    learning_rates.observe(evaluation->loss);
    early_stop.observe(evaluation->loss, state.step);
  };
  // On a GPU the host is ahead: it reads the numbers of a step during the next one.
  const auto finish = [&](FinishedStep step, bool is_evaluated) {
    stop.take_sums(step.numbers.votes);
    non_finite.check(step);
    sample_log.write(step.record, step.samples);
    if (is_evaluated) evaluate_now(), step.record.evaluation = evaluation;
    log.write(step.record);
  };
  const auto state_to_save = [&]() -> const TrainState& {
    non_finite.check_weights(state.step, tensors);
    log.drain();  // so that its files have every step that a checkpoint has
    state.buckets = ddp.buckets();
    if (const auto scaling = scaler.state()) state.grad_scaler = scaling;
    state.seconds = throughput.seconds();
    return state;
  };

  if (state.evaluation_is_due) evaluate_now();
  if (evaluation) log.add(state.step, *evaluation);

  while (state.step < last_step && !early_stop.is_due() && stop.may_step()) {
    failpoint("step");
    profile.begin_step(state.step + 1);
    const std::vector<Batch> micro_batches = loader.next_step(options.grad_accumulation);
    StepMetrics record{.step = state.step + 1, .epoch = micro_batches.front().epoch};
    record.learning_rate = learning_rates.set(record.step);
    optimizer->zero_grad();
    non_finite.keep_buffers();

    at::Tensor loss = at::zeros({}, group.device());
    for (const Batch& batch : micro_batches) {
      const auto no_sync = ddp.no_sync_unless(&batch == &micro_batches.back());  // the last backward averages gradients
      const at::Tensor mean = forward_loss(ddp, *model, *task, batch, options.autocast_type(), record.step);
      const at::Tensor part = mean.div(loss_divisor(batch, micro_batches, options.mean_of_accumulation()));
      scaler.scale(part).backward();
      loss = loss + part.detach();
    }
    const at::Tensor found_inf = scaler.unscale(*optimizer);
    const at::Tensor norm = clip_grad_norm(*optimizer, clipping, found_inf, group);
    const StepSums sums = reduce_step(loss, found_inf, norm, stop.votes(), group);
    optimizer->step(sums.found_inf);  // changes nothing if the loss or a gradient is not finite
    non_finite.restore_buffers(sums.found_inf);
    scaler.update(sums.found_inf);

    state.step = record.step;
    state.position = loader.position();
    state.samples_seen += samples_in(micro_batches) * group.world_size();
    throughput.measure(record, micro_batches);
    reader.add(record, micro_batches, sums);

    evaluation.reset();
    const bool is_evaluated = due(state.step, options.eval_every) || state.step == last_step;
    const bool is_saved = checkpoints.due(state.step);
    for (FinishedStep& step : reader.read(/*all=*/is_evaluated || is_saved)) {
      finish(std::move(step), is_evaluated && step.record.step == state.step);
    }
    if (!is_saved) continue;
    checkpoints.save(state_to_save(), tensors, *optimizer);
    stop.ask();  // a stop is agreed on now, instead of saving again after the next step
  }
  for (FinishedStep& step : reader.read(/*all=*/true)) finish(std::move(step), false);

  const bool is_complete = state.step == last_step || early_stop.is_due();
  if (is_complete && !evaluation) evaluation = evaluate(*model, *task, ddp, evaluating, stop, group);
  if (is_complete && evaluation)
    non_finite.check_end(state.step, *evaluation);  // throws before a checkpoint marks the run as complete
  if (!stop.agreed() || state.step > first_step) checkpoints.save_last(state_to_save(), tensors, *optimizer);
  profile.finish();
  if (!is_complete || !evaluation) {  // the ranks have agreed to stop: rank 0 prints the reason
    log.stop(state.step, group.all_gather(preemption.reason()), checkpoints);
    return code_of_stop(checkpoints.enabled(), static_cast<int>(-group.minimum(-preemption.signal())));
  }
  log.finish(state.step, *evaluation, throughput.rate(), checkpoints.last_saved(), early_stop);
  sample_log.check_complete();
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
        options = parse_command_line(argc, argv, registered_tasks());
        if (!options.is_inference()) preemption.emplace(options.preemption(environment));
        set_numerics(options);
        return options.group();
      },
      [&](ProcessGroup& group) {
        check_same_options(options, group);
        if (!preemption) return run_inference(options, group), ExitCode::kDone;
        preemption->begin_work();
        seed_generators(options);
        const ExitCode code = train(options, group, *preemption);
        code == ExitCode::kDone ? preemption->complete() : preemption->stopped();
        return code;
      });
}
