#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <torchbridge/checkpoint.h>
#include <torchbridge/lr_schedule.h>
#include <torchbridge/model_tensors.h>
#include <torchbridge/preemption.h>
#include <torchbridge/training.h>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "trainer_template/runtime/base/console.h"
#include "trainer_template/runtime/base/failpoint.h"
#include "trainer_template/runtime/base/own_name.h"
#include "trainer_template/runtime/checkpoint/generators.h"
#include "trainer_template/runtime/ddp/parameter_sync.h"
#include "trainer_template/runtime/optim/joined_optimizer.h"
#include "trainer_template/runtime/run/load_or_begin.h"
#include "trainer_template/runtime/run/part_buckets.h"
#include "trainer_template/runtime/run/run_log.h"
#include "trainer_template/runtime/run/run_parts.h"
#include "trainer_template/runtime/training/accumulation.h"
#include "trainer_template/runtime/training/early_stop.h"
#include "trainer_template/runtime/training/evaluation.h"
#include "trainer_template/runtime/training/non_finite.h"
#include "trainer_template/runtime/training/sample_log.h"
#include "trainer_template/runtime/training/step_profile.h"
#include "trainer_template/runtime/training/stop_agreement.h"
#include "trainer_template/runtime/training/throughput.h"

namespace torchbridge::train {
namespace {

// Of a part or a loader of the program's, beside those that are kept.
void check_name(const std::string& name, const std::vector<Part*>& kept) {
  if (!is_part_name(name) || std::ranges::count(kept, name, &Part::name) > 0)
    throw TrainError(
        formatted("the program keeps a part as '{}': expected a name of small letters, digits and "
                  "underscores, once",
                  printable(name)));
}

// A parameter of no optimizer would stay as it is, and so would its optimizer's state when a run
// resumes.
ModelTensors trained_tensors(const Trained& trained) {
  ModelTensors tensors = tensors_of(trained.model);
  std::set<std::string> names;
  for (const Optimizer* one : trained.optimizers.all) {
    const OptimizerRecord record = one->record();
    if (record.groups.empty()) return tensors;  // an optimizer of the program's own
    for (const auto& group : record.groups)
      names.insert(group.parameters.begin(), group.parameters.end());
  }
  for (const auto& [name, parameter] : tensors.parameters) {
    if (parameter.requires_grad() && !names.contains(name))
      throw TrainError(
          formatted("no optimizer of the session has the parameter '{}': give the session all "
                    "optimizers, or call requires_grad_(false)",
                    name));
  }
  return tensors;
}

// Of a call that comes after begin(), which has read what the program keeps.
void check_before_begin(bool has_begun, const char* call) {
  if (has_begun)
    throw TrainError(formatted("the program calls {} after begin(): call it before", call));
}

void check_begun(bool has_begun, const char* call) {
  if (!has_begun)
    throw TrainError(formatted("the program calls {} without begin(): call that first", call));
}

NonFiniteOptions non_finite_options(const Options& options) {
  return {.on_nan = options.on_nan,
          .scales_loss = options.precision == Precision::kFp16,
          .max_skips = options.max_skips};
}

// A checkpoint that has them is of a step whose evaluation has not ended: the start that resumes
// from it begins with that.
PartNumbers unevaluated(const StepMetrics& record) {
  PartNumbers numbers{{"epoch", static_cast<double>(record.epoch)}};
  if (std::isfinite(record.loss)) numbers["loss"] = record.loss;
  if (std::isfinite(record.learning_rate)) numbers["lr"] = record.learning_rate;
  return numbers;
}

// How fast the step was is not known any more.
StepMetrics resumed_step(std::int64_t step, const SavedNumbers& saved) {
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  return {.step = step,
          .epoch = static_cast<std::int64_t>(saved.find("epoch").value_or(0)),
          .loss = saved.find("loss").value_or(kUnknown),
          .learning_rate = saved.find("lr").value_or(kUnknown),
          .samples_per_s = kUnknown,
          .data_time_fraction = kUnknown};
}

// The state of a part that this run does not use is too old for the next one.
void forget_unused(const std::vector<Part*>& used, PartNumbers& all) {
  std::erase_if(all, [&](const auto& entry) {
    const std::string name = entry.first.substr(0, entry.first.find('.'));
    return is_part_name(name) &&
           std::ranges::none_of(used, [&](Part* part) { return part->name() == name; });
  });
}

bool is_stop_requested(const Options& options) {
  return options.preemption && options.preemption->requested();
}

bool is_due(std::int64_t step, std::int64_t every) { return every > 0 && step % every == 0; }

// Their numbers are right: none was summed by a collective that was aborted.
std::vector<FinishedStep> read_steps(StepReader& reader, bool all, const RankGroup& group) {
  std::vector<FinishedStep> steps = reader.read(all);
  group.throw_if_aborted();
  return steps;
}

// Of the optimizers that have made their step, too.
at::Tensor with_earlier(const TrainingStep& step, const at::Tensor& found_inf) {
  return step.found_inf().defined() ? step.found_inf() + found_inf : found_inf;
}

std::unique_ptr<JoinedOptimizer> joined(const std::vector<Optimizer*>& optimizers) {
  return optimizers.size() == 1 ? nullptr : std::make_unique<JoinedOptimizer>(optimizers);
}

}  // namespace

// Another loader than that of the steps.
class KeptLoader final : public Part {
 public:
  KeptLoader(const std::string& name, const Dataset& dataset, const SamplerOptions& sampler,
             const LoaderOptions& options, const SamplerPosition& start)
      : loader(dataset, sampler, options, start), name_(name) {}

  std::string name() const override { return name_; }
  PartNumbers numbers() const override {
    const auto& [epoch, consumed] = loader.position();
    return {{"epoch", static_cast<double>(epoch)}, {"consumed", static_cast<double>(consumed)}};
  }

  Loader loader;

 private:
  std::string name_;
};

// A model that is evaluated with the one that is trained.
struct EvaluatedModel {
  std::string name;
  Model& model;
};

// The run as its checkpoint has it.
struct Session::Run {
  Run(ProcessGroup& its_group, const Options& its_options, const Trained& its_trained)
      : group(its_group),
        options(its_options),
        trained(its_trained),
        tensors(trained_tensors(trained)),
        several(joined(trained.optimizers.all)),
        optimizer(several ? *several : *trained.optimizers.all.front()),
        checkpoints(group, options.checkpoints),
        state(load_or_begin(options, trained.task.train_set(), tensors, optimizer, checkpoints,
                            group)),
        first_step(state.step),
        generators(generator_states(group.device())),
        clipping(gradient_clipping(options, tensors, group)) {
    if (trained.task.eval_set().size() == 0)
      throw TrainError("the evaluation set has no samples: give it one at least");
    if (several) clipping.parameters.clear();  // each optimizer's are clipped alone
  }

  ProcessGroup& group;
  const Options& options;
  const Trained trained;
  const ModelTensors tensors;
  const std::unique_ptr<JoinedOptimizer> several;  // null for one
  Optimizer& optimizer;
  Checkpoints checkpoints;
  TrainState state;
  const std::int64_t first_step;
  const NamedTensors generators;  // as the steps begin
  GradientClipping clipping;
  std::vector<std::unique_ptr<KeptLoader>> loaders;
  std::vector<Part*> parts;  // the program's, from begin() on behind the run's own
  std::vector<EvaluatedModel> evaluated;
};

// Of batch normalisation. Other buffers may be infinite, as masks are.
bool are_statistics_finite(const NamedTensors& buffers) {
  return std::ranges::all_of(buffers, [](const auto& buffer) {
    return buffer.first.find("running_") == std::string::npos ||
           buffer.second.isfinite().all().template item<bool>();
  });
}

// What looks at each step.
struct Session::Observers {
  Observers(Run& run, const std::vector<std::reference_wrapper<DistributedDataParallel>>& its_ddps,
            Loader& its_loader, GradScaler& its_scaler)
      : ddps(its_ddps),
        loader(its_loader),
        scaler(its_scaler),
        last_step(total_steps(run.options, loader, run.state)),
        learning_rates(run.options.schedule(last_step, step_scale_of(run.state)), run.optimizer),
        non_finite(non_finite_options(run.options), run.trained.model.buffers(), run.group),
        evaluating(evaluation_options(run.options, run.trained.model, run.group)),
        early_stop(run.options.early_stop),
        stop(run.group,
             {.wants_to_stop = [&run] { return is_stop_requested(run.options); },
              .has_data =
                  [&](auto time) { return loader.is_ready(run.options.grad_accumulation, time); },
              .data_fail = [&] { return loader.fails(run.options.grad_accumulation); }}),
        log(run.options, run.group, run.tensors, run.state, last_step, run.checkpoints),
        profile(profile_options(run.options, run.group)),
        sample_log(run.group, run.options.sample_log, run_start_of(run.checkpoints, run.state)),
        throughput(run.trained.task, run.trained.model, ddps.front(), run.group.world_size(),
                   peak_of(run.options, run.group)),
        weight(run.trained.task.weight()),
        reader(run.group.device(), run.group.world_size()) {}

  const std::vector<std::reference_wrapper<DistributedDataParallel>> ddps;
  Loader& loader;
  GradScaler& scaler;
  const std::int64_t last_step;
  LearningRates learning_rates;
  NonFinite non_finite;
  const EvaluationOptions evaluating;
  EarlyStop early_stop;
  StopAgreement stop;
  RunLog log;
  StepProfile profile;
  SampleLog sample_log;
  Throughput throughput;
  const BatchWeight weight;
  StepReader reader;
  EvaluationEnd evaluation;  // of the latest step, if it was evaluated
  NamedTensors generators;   // before the step, for save_before()
  bool has_parts_of_program = false, has_rejected = false;
};

Session::Session(ProcessGroup& group, const Options& options, const Trained& trained)
    : run_(std::make_unique<Run>(group, options, trained)) {}

Session::~Session() = default;

const TrainState& Session::state() const { return run_->state; }

const GradientClipping& Session::clipping() const { return run_->clipping; }

DdpOptions Session::ddp_options(const std::string& part) const {
  const Run& run = *run_;
  const ModelTensors tensors = part.empty() ? run.tensors : tensors_of(run.trained.model, part);
  const auto& all = run.trained.optimizers.all;
  const auto own = std::ranges::find_if(all, [&](Optimizer* each) {
    return each->ranges().contains(tensors.parameters.front().first);
  });
  return {.gradient_as_bucket_view = true,
          .comm_hook = comm_hook(run.options, own == all.end() ? run.optimizer : **own, run.group),
          .buckets = part.empty() ? run.state.buckets
                                  : buckets_of_part(run.state.buckets, run.tensors, tensors)};
}

void Session::keep(const std::string& name, const NamedTensors& tensors) {
  check_before_begin(observers_ != nullptr, "keep()");
  run_->checkpoints.keep(name, tensors);
}

void Session::keep(Part& part) {
  check_before_begin(observers_ != nullptr, "keep()");
  const std::string name = part.name();
  if (!name.empty()) check_name(name, run_->parts);
  const SavedNumbers saved(name, run_->state.parts);
  if (!saved.empty())
    part.load(saved);
  else if (!name.empty() && !part.numbers().empty())
    run_->checkpoints.report_missing(name);
  run_->parts.push_back(&part);
}

Loader& Session::loader(const std::string& name, const Dataset& dataset) {
  const Options& options = run_->options;
  return loader(name, dataset, options.sampler(dataset.size(), run_->group),
                options.loading(run_->group));
}

Loader& Session::loader(const std::string& name, const Dataset& dataset,
                        const SamplerOptions& sampler, const LoaderOptions& options) {
  check_before_begin(observers_ != nullptr, "loader()");
  check_name(name, run_->parts);  // before its numbers are read
  const SavedNumbers saved(name, run_->state.parts);
  SamplerPosition start;
  if (!saved.empty()) start = {saved.count_at("epoch"), saved.count_at("consumed")};
  run_->loaders.push_back(std::make_unique<KeptLoader>(name, dataset, sampler, options, start));
  keep(*run_->loaders.back());
  return run_->loaders.back()->loader;
}

void Session::evaluate(const std::string& name, Model& model) {
  check_before_begin(observers_ != nullptr, "evaluate()");
  if (!is_own_name(name) || std::ranges::count(run_->evaluated, name, &EvaluatedModel::name) > 0)
    throw TrainError(
        formatted("the program evaluates a model as '{}': expected a name of small letters, digits "
                  "and underscores, once",
                  printable(name)));
  run_->evaluated.push_back({name, model});
}

void Session::begin(const std::vector<std::reference_wrapper<DistributedDataParallel>>& ddps,
                    Loader& loader, GradScaler& scaler) {
  check_before_begin(observers_ != nullptr, "begin()");
  auto observers = std::make_unique<Observers>(*run_, ddps, loader, scaler);
  Observers& its = *observers;
  const auto programs = static_cast<std::ptrdiff_t>(run_->parts.size());
  its.has_parts_of_program = programs > 0;
  for (Part* own :
       std::initializer_list<Part*>{&its.profile, &its.learning_rates, &its.non_finite,
                                    &its.early_stop, &its.throughput, &its.sample_log, &its.scaler})
    keep(*own);
  std::ranges::rotate(run_->parts, run_->parts.begin() + programs);
  forget_unused(run_->parts, run_->state.parts);
  observers_ = std::move(observers);
  // The program may have made another model since the session was.
  restore_generators(run_->generators, run_->group.device());
  if (const SavedNumbers due(kEvaluation, run_->state.parts); !due.empty())
    evaluate_again(resumed_step(run_->state.step, due));
  else if (run_->state.step < observers_->last_step)
    try_evaluation();
}

void Session::evaluate_again(StepMetrics record) {
  evaluate_now();
  record.evaluation =
      observers_->evaluation.to_record(/*is_last=*/record.step == observers_->last_step);
  if (record.evaluation) observers_->log.add(record);
  save_unevaluated();
}

// Before the work that an error would keep from its end. Draws no random numbers that training or
// the next start would miss.
void Session::try_evaluation() {
  const Throughput::Pause pause(observers_->throughput);
  const c10::Device device = run_->group.device();
  const NamedTensors generators = generator_states(device);
  EvaluationOptions options = observers_->evaluating;
  options.max_batches = 1;
  if (const auto error = evaluate_all(options).error) std::rethrow_exception(error);
  restore_generators(generators, device);
}

std::optional<TrainingStep> Session::next_step() {
  check_begun(observers_ != nullptr, "next_step()");
  Run& run = *run_;
  Observers& its = *observers_;
  if (run.state.step >= its.last_step || its.early_stop.is_due() || !its.stop.may_step())
    return std::nullopt;
  failpoint("step");
  if (run.checkpoints.enabled()) its.generators = generator_states(run.group.device());
  for (Part* part : run.parts) part->before_step(run.state.step + 1);
  std::vector<Batch> batches = its.loader.next_step(run.options.grad_accumulation);
  if (batches.empty())
    throw TrainError(formatted("the program's loader ends before step {} of {}", run.state.step + 1,
                               its.last_step));
  const StepMetrics record{.step = run.state.step + 1,
                           .epoch = batches.front().epoch,
                           .learning_rate = its.learning_rates.of_first_group()};
  std::optional<TrainingStep> step(std::in_place, record, std::move(batches),
                                   run.options.accumulation_mean, run.options.autocast_type());
  if (its.weight && run.options.accumulation_mean == AccumulationMean::kSamples)
    step->set_factors(factors_by_weight(its.weight, step->batches(), run.group));
  step->on_rejected([this](const TrainingStep& rejected) { save_before(rejected); });
  return step;
}

void Session::step_first(TrainingStep& step, Optimizer& optimizer) {
  at::Tensor found_inf = observers_->scaler.unscale(optimizer);
  clip_grad_norm(run_->group, optimizer, run_->clipping, found_inf);
  if (optimizer.has_own_gradients_only()) run_->group.sum(found_inf);  // of all shards
  found_inf = found_inf.ne(0).to(at::kFloat);
  optimizer.step(found_inf);
  step.set_sums({.found_inf = with_earlier(step, found_inf), .numbers = {}});
}

void Session::reduce(TrainingStep& step, const at::Tensor& loss, const at::Tensor& found_inf,
                     const at::Tensor& norm) {
  const bool is_last = step.number() == observers_->last_step;
  step.set_sums(reduce_step(run_->group, {.loss = loss,
                                          .found_inf = with_earlier(step, found_inf),
                                          .norm = norm,
                                          .votes = observers_->stop.votes(is_last),
                                          .logged = step.take_logged()}));
}

void Session::finish(TrainingStep& step) {
  Run& run = *run_;
  Observers& its = *observers_;
  run.state.step = step.number();
  run.state.position = its.loader.position();
  run.state.samples_seen += samples_in(step.batches()) * run.group.world_size();
  for (Part* part : run.parts) part->after_step(step);
  its.reader.add(step.record(), step.batches(), step.sums());

  its.evaluation = {};
  const bool is_last = run.state.step == its.last_step;
  const bool is_evaluated = is_due(run.state.step, run.options.eval_every) || is_last;
  const bool is_saved = run.checkpoints.due(run.state.step);
  std::optional<StepMetrics> record;  // written once it is evaluated
  for (FinishedStep& read : read_steps(its.reader, /*all=*/is_evaluated || is_saved, run.group)) {
    if (is_evaluated && read.record.step == run.state.step) record = read.record;
    finish_read(std::move(read), /*is_written=*/!record);
  }
  if (record) save_numbers(kEvaluation, unevaluated(*record), run.state.parts);
  // The last evaluation may end the run. If it does not, end() saves what is left out or fails
  // here.
  if (is_last && !its.non_finite.may_fail(run.state.step))
    run.checkpoints.save_and_wait(state_to_save(), run.tensors, run.optimizer);
  else if (is_saved)
    run.checkpoints.save(state_to_save(), run.tensors, run.optimizer);
  if (is_saved) its.stop.ask();  // now, instead of saving again after the next step
  if (!record) return;
  evaluate_now();
  record->evaluation = its.evaluation.to_record(is_last);
  its.log.write(*record);
  save_unevaluated();
}

// On a GPU the host is ahead: it reads the numbers of a step during the next one.
void Session::finish_read(FinishedStep step, bool is_written) {
  Observers& its = *observers_;
  its.stop.take_sums(step.numbers.votes);
  for (Part* part : run_->parts) part->read(step);
  const std::exception_ptr& error = its.non_finite.error();
  if (is_written && !error) its.log.write(std::move(step.record));
  if (!error) return;
  if (run_->checkpoints.enabled() && run_->group.is_first())
    print_message(
        "the state after a step whose loss or gradient is not finite is not saved: the same "
        "command goes on from the newest checkpoint, if there is one");
  throw_on_all([&] { std::rethrow_exception(error); });
}

EvaluationEnd Session::evaluate_all(const EvaluationOptions& options) {
  Run& run = *run_;
  Observers& its = *observers_;
  for (DistributedDataParallel& ddp : its.ddps) ddp.synchronize_buffers();
  const auto evaluate_one = [&](Model& model, const EvaluationOptions& own) {
    return train::evaluate(model, run.trained.task, own, its.stop, run.group);
  };
  EvaluationEnd all = evaluate_one(run.trained.model, options);
  EvaluationOptions others = options;
  others.forward = {};  // --compiled-eval is of the model that is trained
  for (const auto& [name, model] : run.evaluated) {
    if (!all.result) return all;
    broadcast_values(model.buffers(), run.group);
    EvaluationEnd one = evaluate_one(model, others);
    if (!one.result) return one;
    all.result->metrics.emplace_back(name + "_loss", one.result->loss);
    for (const auto& [metric, value] : one.result->metrics)
      all.result->metrics.emplace_back(name + "_" + metric, value);
  }
  return all;
}

void Session::evaluate_now() {
  Run& run = *run_;
  Observers& its = *observers_;
  const Throughput::Pause pause(its.throughput);
  its.evaluation = evaluate_all(its.evaluating);
  if (!its.evaluation.result) return;
  save_numbers(kEvaluation, {}, run.state.parts);
  if (!is_due(run.state.step, run.options.eval_every)) return;
  for (Part* part : run.parts) part->evaluated(run.state.step, its.evaluation.result->loss);
}

// The error of an evaluation takes no step away.
void Session::save_unevaluated() {
  if (!observers_->evaluation.error) return;
  save_last();
  if (run_->checkpoints.enabled() && run_->group.is_first())
    print_message(
        formatted("the state after step {} is saved, and the same command repeats its evaluation",
                  run_->state.step));
  std::rethrow_exception(observers_->evaluation.error);
}

// A batch that the model or a loss rejects takes no earlier step away where all ranks reject it
// before the step's collectives, and only buffers and generators have changed since.
void Session::save_before(const TrainingStep& step) {
  constexpr double kUntilAllReject = 5;
  Run& run = *run_;
  Observers& its = *observers_;
  const bool has_stepped = step.sums().found_inf.defined();  // an optimizer, by step_first()
  if (!run.checkpoints.enabled() || run.state.step == run.first_step || has_stepped ||
      its.has_parts_of_program || std::exchange(its.has_rejected, true))
    return;
  const std::chrono::duration<double> time(std::min(kUntilAllReject, run.options.timeout_s / 4));
  if (!run.group.all_meet(formatted("rejected-{}", step.number()),
                          std::chrono::ceil<std::chrono::milliseconds>(time)))
    return;
  try {
    for (FinishedStep& read : read_steps(its.reader, /*all=*/true, run.group))
      finish_read(std::move(read), /*is_written=*/true);
    if (!are_statistics_finite(run.tensors.buffers)) return;
    restore_generators(its.generators, run.group.device());
    save_last();
  } catch (const std::exception&) {
    return;  // the step's error is the reason of the end
  }
  if (run.group.is_first())
    print_message(formatted("the state after step {} is saved", run.state.step));
}

// `check` throws on all ranks or on none. If it does, a save that runs ends before: it has an
// earlier state.
void Session::throw_on_all(const std::function<void()>& check) {
  try {
    check();
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    run_->group.throw_if_aborted();
    try {
      run_->checkpoints.wait();
    } catch (const std::exception&) {
      // Another rank has ended meanwhile; the reason is still this one.
    }
    std::rethrow_exception(error);
  }
}

const TrainState& Session::state_to_save() {
  Run& run = *run_;
  Observers& its = *observers_;
  throw_on_all([&] { its.non_finite.check_weights(run.state.step, run.tensors); });
  its.log.drain();  // so that its files have every step that a checkpoint has
  run.state.buckets = buckets_of(its.ddps, run.tensors);
  for (const Part* part : run.parts) {
    if (!part->name().empty()) save_numbers(part->name(), part->numbers(), run.state.parts);
  }
  return run.state;
}

void Session::save_last() {
  run_->checkpoints.save_last(state_to_save(), run_->tensors, run_->optimizer);
}

ExitCode Session::end() {
  check_begun(observers_ != nullptr, "end()");
  Run& run = *run_;
  Observers& its = *observers_;
  for (FinishedStep& step : read_steps(its.reader, /*all=*/true, run.group))
    finish_read(std::move(step), /*is_written=*/true);
  const bool has_all_steps = run.state.step == its.last_step || its.early_stop.is_due();
  if (has_all_steps && !its.evaluation.result) its.evaluation = evaluate_all(its.evaluating);
  if (its.evaluation.error) std::rethrow_exception(its.evaluation.error);
  const bool is_complete = has_all_steps && its.evaluation.result;
  // Throws before a checkpoint marks the run as complete.
  throw_on_all([&] {
    if (is_complete) its.non_finite.check_end(run.state.step, *its.evaluation.result);
  });
  if (!its.stop.agreed() || run.state.step > run.first_step) save_last();
  its.profile.finish();
  if (!is_complete) return stopped();
  if (!its.evaluation.not_finite.empty())
    throw TrainError(
        formatted("the evaluation loss after step {} is {}, while all weights are finite: correct "
                  "the data or the loss, or lower --lr",
                  run.state.step, its.evaluation.not_finite));
  its.log.finish(run.state.step, *its.evaluation.result, its.throughput.rate(),
                 run.checkpoints.last_saved(), its.early_stop);
  its.sample_log.check_complete();
  return ExitCode::kDone;
}

// The ranks have agreed to stop: rank 0 prints the reason. Without one, a rank's next data have
// failed: it throws their error.
ExitCode Session::stopped() {
  Run& run = *run_;
  Loader& loader = observers_->loader;
  const std::int64_t batches = run.options.grad_accumulation;
  const Preemption* stops = run.options.preemption;
  const bool is_asked = run.group.minimum(is_stop_requested(run.options) ? 0 : 1) == 0;
  if (is_asked || run.state.step > run.first_step)
    observers_->log.stop(run.state.step, run.group.all_gather(stops ? stops->reason() : ""),
                         run.checkpoints);
  if (!is_asked)
    all_or_none(run.group, [&] {
      if (loader.fails(batches)) loader.next_step(batches);
    });
  return code_of_stop(run.checkpoints.enabled(),
                      static_cast<int>(-run.group.minimum(stops ? -stops->signal() : 0)));
}

}  // namespace torchbridge::train
