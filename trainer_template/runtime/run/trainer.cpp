#include <torchbridge/train/run/trainer.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/div.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torchbridge/train/console.h>
#include <torchbridge/train/failpoint.h>
#include <torchbridge/train/optim/found_inf.h>
#include <torchbridge/train/optim/grad_clip.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <span>
#include <sstream>

namespace torchbridge::train {

using Clock = std::chrono::steady_clock;

namespace {

// The entries of a checkpoint's state that belong to `owner`: "grad_scaler.scale" is its "scale".
std::map<std::string, double> entries_of(const std::map<std::string, double>& all, const std::string& owner) {
  std::map<std::string, double> entries;
  for (const auto& [name, value] : all) {
    if (name.starts_with(owner + ".")) entries[name.substr(owner.size() + 1)] = value;
  }
  return entries;
}

void put_entries(const std::map<std::string, double>& entries, const std::string& owner, std::map<std::string, double>& all) {
  for (const auto& [name, value] : entries) all[owner + "." + name] = value;
}

std::int64_t samples_in(std::span<const Batch> parts) {
  std::int64_t samples = 0;
  for (const Batch& part : parts) samples += part.samples();
  return samples;
}

std::string sample_list(std::span<const Batch> parts) {
  std::string text;
  for (const Batch& part : parts) {
    for (const std::int64_t index : part.indices) text += " " + std::to_string(index);
  }
  return text;
}

// Of forward and backward, in the last step that DDP timed; nothing before the first.
std::optional<double> communication_share(DistributedDataParallel& ddp) {
  const auto numbers = ddp.logging_data().numbers;
  const auto ns = [&](const char* name) {
    const auto found = numbers.find(name);
    return found == numbers.end() ? 0.0 : static_cast<double>(found->second);
  };
  const double communication = ns("backward_comm_time");
  const double all = ns("forward_compute_time") + ns("backward_compute_time") + communication - ns("backward_compute_comm_overlap_time");
  if (communication <= 0 || all <= 0) return std::nullopt;
  return communication / all;
}

}  // namespace

Trainer::Trainer(ProcessGroup& group, const Task& task, Model& model, DistributedDataParallel& ddp, Optimizer& optimizer,
                 TrainerOptions options, Manifest progress)
    : group_(group), task_(task), model_(model), ddp_(ddp), optimizer_(optimizer), options_(std::move(options)), flops_(task.flops_per_sample(model)),
      progress_(std::move(progress)), samples_before_(progress_.samples_seen), seconds_before_(run_seconds(progress_)), begin_(Clock::now()), last_step_(begin_) {
  metrics_.push_back(mean_over_samples(
      "loss", [this](const at::Tensor& outputs, const at::Tensor& targets) { return task_.loss(outputs, targets); }));
  for (Metric& each : task_.metrics()) metrics_.push_back(std::move(each));
  for (const ParameterGroup& each : optimizer_.groups()) base_rates_.push_back(each.options.lr);
  if (is_plateau(options_.schedule)) plateau_.emplace(options_.schedule, base_rates_);
  if (options_.on_nan == OnNan::kSkip) buffers_ = model_.buffers();
  for (const at::Tensor& buffer : buffers_) buffers_before_.push_back(buffer.detach().clone());
  if (options_.precision == at::kHalf) scaler_.emplace(group_, options_.scaler);
  const auto plateau = entries_of(progress_.state, "plateau"), scaler = entries_of(progress_.state, "grad_scaler");
  if (plateau_ && !plateau.empty()) plateau_->load_state(plateau);
  if (scaler_ && !scaler.empty()) scaler_->load_state(scaler);
}

StepRecord Trainer::train_step(std::span<const Batch> parts) {
  failpoint("step");
  StepRecord record{.step = progress_.step + 1, .epoch = parts.front().epoch};
  set_learning_rates(record.step);
  record.learning_rate = optimizer_.groups().front().options.lr;
  optimizer_.zero_grad();
  keep_buffers();
  const at::Tensor loss = forward_backward(parts);
  optimizer_.average_gradients();
  const Shared shared = share(loss, found_inf(loss.device()));
  record.loss = shared.loss;
  const auto norm = shared.not_finite == 0 && !shared.found_inf ? clip() : std::nullopt;
  if (norm) record.grad_norm = norm->item<double>();
  const bool refused = refuse(loss, shared, record, parts);
  if (refused) restore_buffers();
  record.skipped = refused || !step_optimizer();
  if (record.skipped && scaler_) record.grad_norm.reset();  // it overflowed
  measure(record, parts);
  progress_.step = record.step;
  progress_.position = parts.back().next;
  count_skips(record);
  return record;
}

void Trainer::set_learning_rates(std::int64_t step) {
  const std::vector<double>& rates = plateau_ ? plateau_->learning_rates() : base_rates_;
  const auto momentum = cycled_momentum(options_.schedule, step);
  for (std::size_t i = 0; i < rates.size(); ++i) {
    OptimizerOptions& options = optimizer_.groups()[i].options;
    options.lr = train::learning_rate(options_.schedule, rates[i], step);
    if (momentum) options.momentum = options.beta1 = *momentum;
  }
}

std::unique_ptr<Autocast> Trainer::autocast() const {
  if (options_.precision == at::kFloat) return nullptr;
  return std::make_unique<Autocast>(options_.device, options_.precision);
}

// The model may refuse the batch, as batch normalisation does a single value a channel; a broken connection is told by the group.
at::Tensor Trainer::forward(const Batch& part) try {
  return model_.forward(part.inputs);
} catch (const c10::DistError&) {
  throw;
} catch (const c10::Error& error) {
  throw TrainError("step " + std::to_string(progress_.step + 1) + ": the model does not take a batch of " + std::to_string(part.samples()) +
                   (part.samples() == 1 ? " sample: " : " samples: ") + one_line(error));
}

// Returns the mean loss of this rank's parts.
at::Tensor Trainer::forward_backward(std::span<const Batch> parts) {
  at::Tensor sum;
  const bool by_batches = options_.accumulation_mean == AccumulationMean::kBatches;
  const auto samples = static_cast<double>(samples_in(parts)), batches = static_cast<double>(parts.size());
  for (const Batch& part : parts) {
    std::optional<DistributedDataParallel::NoSync> no_sync;
    if (&part != &parts.back() || optimizer_.averages_gradients()) no_sync.emplace(ddp_);
    at::Tensor loss;
    {
      const auto scope = autocast();
      const at::Tensor outputs = ddp_.forward([&] { return forward(part); });
      // The number of batches, also by samples where all have one size.
      const double divisor = by_batches ? batches : samples / static_cast<double>(part.samples());
      loss = task_.loss(outputs, part.targets).div(divisor);
    }
    (scaler_ ? scaler_->scale(loss) : loss).backward();
    sum = sum.defined() ? sum + loss.detach() : loss.detach().clone();
  }
  return sum;
}

// Running statistics of batch normalisation would keep what a bad batch leaves in them, NaN for good.
void Trainer::keep_buffers() {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < buffers_.size(); ++i) buffers_before_[i].copy_(buffers_[i]);
}

void Trainer::restore_buffers() {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < buffers_.size(); ++i) buffers_[i].copy_(buffers_before_[i]);
}

// The norm, where it is to be known.
std::optional<at::Tensor> Trainer::clip() {
  const bool clips = options_.clip_norm > 0;
  if (!clips && !options_.grad_norm) return std::nullopt;
  if (scaler_) scaler_->unscale(optimizer_);
  const ClipOptions clipping{.max_norm = clips ? options_.clip_norm : std::numeric_limits<double>::infinity()};
  if (optimizer_.averages_gradients()) return clip_grad_norm(optimizer_.averaged(), clipping, group_);
  return clip_grad_norm(options_.clipped.empty() ? optimizer_.averaged() : options_.clipped, clipping);
}

// Of the averaged gradients. With loss scaling it is 0, for the scaler looks at them.
at::Tensor Trainer::found_inf(c10::Device device) const {
  const at::TensorOptions number = at::device(device).dtype(at::kFloat);
  return scaler_ ? at::zeros({}, number) : scale_and_find_inf(optimizer_.averaged(), at::ones({}, number), device);
}

Trainer::Shared Trainer::share(const at::Tensor& loss, const at::Tensor& found_inf) {
  const at::Tensor not_finite = at::isfinite(loss).logical_not().to(loss.scalar_type());
  const StopAgreement::Votes own = options_.stop ? options_.stop->votes() : StopAgreement::Votes{};
  const auto scalar = [&](double value) { return at::scalar_tensor(value, loss.options()); };
  const at::Tensor found = found_inf.to(loss.scalar_type());
  const at::Tensor sums = at::stack({loss, not_finite, found, scalar(own.stop), scalar(own.without_data)});
  group_.sum(sums);
  // Divided as a tensor: in its own precision, as Python's mean over the ranks.
  const at::Tensor mean = sums[0].div(group_.world_size()), all = sums.to(at::kCPU, at::kDouble);
  if (options_.stop) options_.stop->learn({.stop = all[3].item<double>(), .without_data = all[4].item<double>()});
  return {.loss = mean.item<double>(),
          .not_finite = static_cast<int>(all[1].item<double>()),
          .found_inf = all[2].item<double>() > 0};
}

// Whether the step must be left out; by OnNan::kStop it throws. With loss scaling the scaler answers for gradients.
bool Trainer::refuse(const at::Tensor& loss, const Shared& shared, const StepRecord& record, std::span<const Batch> parts) {
  const bool bad_norm = !scaler_ && record.grad_norm && !std::isfinite(*record.grad_norm);
  if (shared.not_finite == 0 && !shared.found_inf && !bad_norm) return false;
  const double own = loss.item<double>();
  const bool concerned = shared.not_finite == 0 || !std::isfinite(own);
  const std::int64_t speaker = group_.minimum(concerned ? group_.rank() : group_.world_size());
  std::ostringstream what;
  what << "step " << record.step << ": ";
  if (shared.not_finite > 0) {
    what << "the loss is " << (std::isnan(own) ? "nan" : own > 0 ? "inf" : "-inf") << " on " << shared.not_finite << " of " << group_.world_size() << " ranks";
  } else if (shared.found_inf) {
    what << "a gradient is infinite or NaN";
  } else {
    what << "the norm of the gradients is " << *record.grad_norm;
  }
  what << " (learning rate " << record.learning_rate << "); samples of this rank:" << sample_list(parts);
  const bool speaks = speaker == group_.rank();
  if (options_.on_nan == OnNan::kSkip) {
    if (speaks) say("rank " + std::to_string(group_.rank()) + ": " + what.str() + "; the step is left out");
    return true;
  }
  if (speaks) throw TrainError(what.str() + "; lower --lr, clip with --clip-norm, or leave such steps out with --on-nan skip");
  throw PeerFailed();
}

// False where loss scaling overflowed.
bool Trainer::step_optimizer() {
  if (!scaler_) return optimizer_.step(), true;
  const bool stepped = scaler_->step(optimizer_);
  scaler_->update();
  return stepped;
}

void Trainer::count_skips(const StepRecord& record) {
  skips_ = record.skipped ? skips_ + 1 : 0;
  if (options_.max_skips == 0 || skips_ < options_.max_skips) return;
  throw TrainError("step " + std::to_string(record.step) + ": the last " + std::to_string(skips_) +
                   " steps were left out, each for a loss or gradient that is infinite or NaN; "
                   "lower --lr, or with fp16 --loss-scale, or raise --max-skips");
}

void Trainer::measure(StepRecord& record, std::span<const Batch> parts) {
  const std::int64_t samples = samples_in(parts) * group_.world_size();
  double waited = 0;
  for (const Batch& batch : parts) waited += batch.waited_s;
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - last_step_).count();
  last_step_ = now;
  progress_.samples_seen += samples;
  record.samples_per_s = static_cast<double>(samples) / seconds;
  record.data_wait = std::min(waited / seconds, 1.0);
  if (const auto tokens = task_.tokens_per_sample(); tokens > 0) record.tokens_per_s = record.samples_per_s * static_cast<double>(tokens);
  if (flops_ > 0) {
    record.tflops = flops_ * record.samples_per_s / group_.world_size() / 1e12;
    if (options_.peak_tflops > 0) record.mfu = *record.tflops / options_.peak_tflops;
  }
  // c10d times the first ten steps of a process and every hundredth, and tells it a step later.
  ++steps_here_;
  constexpr std::int64_t kTimed = 100;
  if (group_.world_size() > 1 && (steps_here_ <= 11 || steps_here_ % kTimed == 1)) comm_share_ = communication_share(ddp_);
  record.comm_share = comm_share_;
}

void Trainer::evaluate_batch(const Batch& batch, const at::Tensor& sums) {
  const auto scope = autocast();
  const at::Tensor inputs = batch.inputs.to(group_.device()), targets = batch.targets.to(group_.device());
  const at::Tensor outputs = options_.eval_forward ? options_.eval_forward(inputs) : model_.forward(inputs);
  std::vector<at::Tensor> of_batch;
  for (const Metric& metric : metrics_) of_batch.push_back(sums_of(metric, outputs, targets));
  sums.add_(at::cat(of_batch).to(sums.device()));
}

std::optional<Evaluation> Trainer::evaluate(const Dataset& dataset, std::int64_t batch_size) {
  const at::NoGradGuard no_grad;
  const auto begun = Clock::now();
  ddp_.synchronize_buffers();
  model_.eval();  // batch normalisation takes its running statistics then
  progress_.state[kEvaluationDue] = 1;
  const auto indices = each_once(dataset.size(), group_.rank(), group_.world_size());
  const auto most = static_cast<std::size_t>((dataset.size() + group_.world_size() - 1) / group_.world_size());  // of all ranks
  std::vector<std::int64_t> sizes;
  for (const Metric& metric : metrics_) sizes.push_back(metric.size);
  const at::Tensor sums = at::zeros({std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0})}, at::kDouble);
  std::optional<StopRounds> rounds;
  if (options_.stop) rounds.emplace(*options_.stop);
  bool stopped = false;
  for (std::size_t begin = 0; begin < most && !stopped; begin += batch_size) {
    failpoint("evaluate");
    stopped = rounds && rounds->stop_now();
    if (stopped || begin >= indices.size()) continue;
    const auto count = std::min<std::size_t>(batch_size, indices.size() - begin);
    evaluate_batch(dataset.collate(std::span(indices).subspan(begin, count)), sums);
  }
  model_.train();
  if (!stopped) group_.sum(sums);
  const auto taken = Clock::now() - begun;
  evaluations_ += taken;
  last_step_ += taken;
  if (stopped) return std::nullopt;
  progress_.state.erase(kEvaluationDue);
  const std::vector<at::Tensor> parts = sums.split_with_sizes(sizes);
  Evaluation result{.loss = metrics_[0].value(parts[0]), .metrics = {}};
  for (std::size_t i = 1; i < metrics_.size(); ++i) {
    result.metrics.emplace_back(metrics_[i].name, metrics_[i].value(parts[i]));
  }
  return result;
}

void Trainer::observe(const Evaluation& evaluation) {
  if (plateau_) plateau_->observe(evaluation.loss);
}

Manifest Trainer::progress() {
  progress_.buckets = ddp_.buckets();
  if (plateau_) put_entries(plateau_->state(), "plateau", progress_.state);
  if (scaler_) put_entries(scaler_->state(), "grad_scaler", progress_.state);
  progress_.state[kRunSeconds] = seconds();
  return progress_;
}

double Trainer::seconds() const {
  const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin_);
  return seconds_before_ + static_cast<double>(now.count()) / 1000;
}

double Trainer::samples_per_s() const {
  const std::chrono::duration<double> time = Clock::now() - begin_ - evaluations_;
  return static_cast<double>(progress_.samples_seen - samples_before_) / time.count();
}

}  // namespace torchbridge::train
