#include <torchbridge/train/trainer.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/div.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torchbridge/train/optim/grad_clip.h>

#include <algorithm>
#include <map>
#include <span>

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

}  // namespace

Trainer::Trainer(ProcessGroup& group, DistributedDataParallel& ddp, Optimizer& optimizer, Task task,
                 TrainerOptions options, Manifest progress)
    : group_(group), ddp_(ddp), optimizer_(optimizer), task_(std::move(task)), options_(std::move(options)),
      progress_(std::move(progress)), samples_before_(progress_.samples_seen), begin_(Clock::now()), last_step_(begin_) {
  for (const ParameterGroup& each : optimizer_.groups()) base_rates_.push_back(each.options.lr);
  if (is_plateau(options_.schedule)) plateau_.emplace(options_.schedule, base_rates_);
  if (options_.precision == at::kHalf) scaler_.emplace(group_, options_.scaler);
  const auto plateau = entries_of(progress_.state, "plateau"), scaler = entries_of(progress_.state, "grad_scaler");
  if (plateau_ && !plateau.empty()) plateau_->load_state(plateau);
  if (scaler_ && !scaler.empty()) scaler_->load_state(scaler);
}

StepRecord Trainer::train_step(std::span<const Batch> parts) {
  StepRecord record{.step = progress_.step + 1, .epoch = parts.front().epoch};
  set_learning_rates(record.step);
  record.learning_rate = optimizer_.groups().front().options.lr;
  optimizer_.zero_grad();
  const at::Tensor loss = forward_backward(parts);
  optimizer_.average_gradients();
  if (options_.clip_norm > 0) clip();
  if (scaler_) {
    scaler_->step(optimizer_);
    scaler_->update();
  } else {
    optimizer_.step();
  }

  group_.sum(loss);
  record.loss = loss.div(group_.world_size()).item<double>();
  std::int64_t samples = 0;
  for (const Batch& batch : parts) samples += batch.samples() * group_.world_size();
  const auto now = Clock::now();
  record.samples_per_s = static_cast<double>(samples) / std::chrono::duration<double>(now - last_step_).count();
  last_step_ = now;
  progress_.step = record.step;
  progress_.position = parts.back().next;
  progress_.samples_seen += samples;
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

// Returns the mean loss of this rank's parts.
at::Tensor Trainer::forward_backward(std::span<const Batch> parts) {
  at::Tensor sum;
  for (const Batch& part : parts) {
    std::optional<DistributedDataParallel::NoSync> no_sync;
    if (&part != &parts.back() || optimizer_.averages_gradients()) no_sync.emplace(ddp_);
    at::Tensor loss;
    {
      const auto scope = autocast();
      const at::Tensor outputs = ddp_.forward([&] { return task_.forward(part.inputs); });
      loss = task_.loss(outputs, part.targets).div(static_cast<double>(parts.size()));
    }
    (scaler_ ? scaler_->scale(loss) : loss).backward();
    sum = sum.defined() ? sum + loss.detach() : loss.detach().clone();
  }
  return sum;
}

void Trainer::clip() {
  if (scaler_) scaler_->unscale(optimizer_);
  const ClipOptions clipping{.max_norm = options_.clip_norm};
  if (optimizer_.averages_gradients()) {
    clip_grad_norm(optimizer_.averaged(), clipping, group_);
  } else {
    clip_grad_norm(options_.clipped.empty() ? optimizer_.averaged() : options_.clipped, clipping);
  }
}

Evaluation Trainer::evaluate(const Dataset& dataset, std::int64_t batch_size) const {
  const at::NoGradGuard no_grad;
  const auto indices = each_once(dataset.size(), group_.rank(), group_.world_size());
  const at::Tensor sums = at::zeros({3}, at::kDouble);  // loss, right answers, samples
  auto* sum = sums.mutable_data_ptr<double>();
  for (std::size_t begin = 0; begin < indices.size(); begin += batch_size) {
    const auto count = std::min<std::size_t>(batch_size, indices.size() - begin);
    const Batch batch = dataset.collate(std::span(indices).subspan(begin, count));
    const auto scope = autocast();
    const at::Tensor outputs = task_.forward(batch.inputs);
    sum[0] += task_.loss(outputs, batch.targets).item<double>() * static_cast<double>(count);
    sum[1] += outputs.argmax(-1).eq(batch.targets.to(outputs.device())).sum().item<double>();
    sum[2] += static_cast<double>(count);
  }
  group_.sum(sums);
  return {.loss = sum[0] / sum[2], .accuracy = sum[1] / sum[2]};
}

void Trainer::observe(const Evaluation& evaluation) {
  if (plateau_) plateau_->observe(evaluation.loss);
}

Manifest Trainer::progress() {
  progress_.buckets = ddp_.buckets();
  if (plateau_) put_entries(plateau_->state(), "plateau", progress_.state);
  if (scaler_) put_entries(scaler_->state(), "grad_scaler", progress_.state);
  return progress_;
}

double Trainer::samples_per_s() const {
  const std::chrono::duration<double> time = Clock::now() - begin_;
  return static_cast<double>(progress_.samples_seen - samples_before_) / time.count();
}

}  // namespace torchbridge::train
