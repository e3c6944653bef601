#include "trainer_template/runtime/training/evaluation.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torchbridge/data.h>
#include <torchbridge/errors.h>

#include "bridge/base/message_text.h"
#include "trainer_template/runtime/base/failpoint.h"
#include "trainer_template/runtime/optim/autocast.h"
#include "trainer_template/runtime/training/accumulation.h"

namespace torchbridge::train {
namespace {

// Eval mode while it lives: batch normalisation uses its running statistics, dropout is off.
class EvalMode {
 public:
  explicit EvalMode(Model& model) : model_(model) { model_.eval(); }
  ~EvalMode() { model_.train(); }
  EvalMode(const EvalMode&) = delete;
  EvalMode& operator=(const EvalMode&) = delete;

 private:
  Model& model_;
};

// The loss, its parts if there are several, then the task's metrics.
std::vector<Metric> metrics_of(const Task& task) {
  std::vector<Loss> losses = task.losses();
  const BatchWeight weight = task.weight();
  const auto loss = [losses](const Outputs& outputs, const Batch& batch) {
    at::Tensor sum = part_of_sum(losses.front(), losses.front().mean(outputs, batch));
    for (std::size_t i = 1; i < losses.size(); ++i)
      sum = sum + part_of_sum(losses[i], losses[i].mean(outputs, batch));
    return sum;
  };
  std::vector<Metric> metrics = {weighted_mean("loss", loss, weight)};
  if (losses.size() == 1) losses.clear();
  for (Loss& each : losses)
    metrics.push_back(weighted_mean(each.name + "_loss", std::move(each.mean), weight));
  for (Metric& each : task.metrics()) {
    if (std::ranges::count(metrics, each.name, &Metric::name) > 0)
      throw TrainError(
          formatted("the task has a metric '{}', and evaluations have that number "
                    "already: choose another name",
                    each.name));
    metrics.push_back(std::move(each));
  }
  return metrics;
}

// The sums of all metrics, concatenated.
at::Tensor sums_of_batch(const Batch& batch, Model& model, const std::vector<Metric>& metrics,
                         const EvaluationOptions& options) {
  std::optional<Autocast> autocast;
  if (options.precision != c10::kFloat)
    autocast.emplace(model.parameters().front().device().type(), options.precision);
  const Outputs outputs =
      options.forward ? Outputs{options.forward(batch.inputs)} : model.forward_batch(batch);
  std::vector<at::Tensor> sums;
  for (const Metric& metric : metrics) sums.push_back(sums_of(metric, outputs, batch));
  return at::cat(sums);
}

// This rank's share of an evaluation.
class EvaluationShare {
 public:
  EvaluationShare(Model& model, const Task& task, const EvaluationOptions& options,
                  const ProcessGroup& group)
      : model_(model),
        dataset_(task.eval_set()),
        options_(options),
        device_(group.device()),
        metrics_(metrics_of(task)),
        sampler_{.size = dataset_.size(),
                 .world_size = group.world_size(),
                 .rank = group.rank(),
                 .order = Order::kSequential,
                 .allow_uneven_shards = true} {
    for (const Metric& metric : metrics_) sizes_.push_back(metric.size);
    const std::int64_t size = std::accumulate(sizes_.begin(), sizes_.end(), std::int64_t{0});
    // The last one counts ranks with an error.
    sums_ = at::zeros({size + 1}, at::device(device_).dtype(at::kDouble));
  }

  // Does nothing at the end, and once it has failed.
  void add_batch() {
    if (error_) return;
    try {
      if (!loader_) loader_ = loader(options_.batch_size, options_.max_batches, {});
      const auto batch = loader_ ? loader_->next() : std::nullopt;
      if (!batch) return;
      has_batch_ = true;
      const at::Tensor sums = sums_of_batch(*batch, model_, metrics_, options_);
      sums_.slice(0, 0, sums.size(0)).add_(sums);
      are_finite_.push_back(is_finite(sums));
      has_batch_ = false;
    } catch (const c10::AcceleratorError&) {
      throw;
    } catch (const c10::DistError&) {
      throw;
    } catch (...) {
      fail();
    }
  }

  // Collective.
  EvaluationEnd end(ProcessGroup& group) {
    group.sum(sums_);
    std::vector<std::int64_t> sizes = sizes_;
    sizes.push_back(1);
    const std::vector<at::Tensor> sums = sums_.to(at::kCPU).split_with_sizes(sizes);
    group.throw_if_aborted();
    if (sums.back().item<double>() > 0) return failed(group);
    EvaluationEnd end{.result = Evaluation{.loss = metrics_[0].value(sums[0]), .metrics = {}}};
    for (std::size_t i = 1; i < metrics_.size(); ++i)
      end.result->metrics.emplace_back(metrics_[i].name, metrics_[i].value(sums[i]));
    if (!std::isfinite(end.result->loss)) end.not_finite = not_finite(end.result->loss, group);
    return end;
  }

 private:
  // Null for a rank without a sample.
  std::unique_ptr<Loader> loader(std::int64_t batch_size, std::int64_t max_batches,
                                 const SamplerPosition& start) const {
    if (samples_per_rank(sampler_, start.consumed) == 0) return nullptr;
    return std::make_unique<Loader>(dataset_, sampler_,
                                    LoaderOptions{.batch_size = batch_size,
                                                  .workers = options_.workers,
                                                  .max_batches = max_batches,
                                                  .device = device_,
                                                  .skipped = options_.skipped},
                                    start);
  }

  // REQUIRES: an exception is being handled.
  void fail() {
    error_ = std::current_exception();
    sums_[-1].fill_(1);
    if (!has_batch_) return;  // the loader has named the sample
    try {
      std::rethrow_exception(error_);
    } catch (const std::exception& error) {
      const auto sample = first_bad_sample(std::ssize(are_finite_));
      error_ = std::make_exception_ptr(
          TrainError(formatted("sample {} of the evaluation set: {}", sample, one_line(error))));
    } catch (...) {
    }
  }

  // Of the batch, of which each sample is evaluated alone; the first if none is bad then. One that
  // is skipped cannot be read.
  std::int64_t first_bad_sample(std::int64_t batch_number) const {
    const std::int64_t consumed = batch_number * options_.batch_size * sampler_.world_size;
    const auto samples = loader(1, -1, {0, consumed});
    for (std::int64_t i = 0; i < options_.batch_size; ++i) {
      std::optional<Batch> batch;
      try {
        batch = samples->next();
      } catch (const c10::AcceleratorError&) {
        throw;
      } catch (...) {
        continue;
      }
      if (!batch) break;
      const std::int64_t sample = batch->indices.front();
      try {
        const at::Tensor sums = sums_of_batch(*batch, model_, metrics_, options_);
        if (!is_finite(sums).item<bool>()) return sample;
      } catch (const c10::AcceleratorError&) {
        throw;
      } catch (...) {
        return sample;
      }
    }
    return consumed + sampler_.rank;
  }

  at::Tensor is_finite(const at::Tensor& sums) const {
    return sums.slice(0, 0, sizes_.front()).isfinite().all();
  }

  EvaluationEnd failed(ProcessGroup& group) const {
    const auto first = group.minimum(error_ ? group.rank() : group.world_size());
    return {.result = {},
            .error = first == group.rank() ? error_ : std::make_exception_ptr(PeerFailed()),
            .not_finite = {}};
  }

  // Collective.
  std::string not_finite(double loss, ProcessGroup& group) const {
    const auto batch = std::ranges::find_if(
        are_finite_, [](const at::Tensor& is_finite) { return !is_finite.item<bool>(); });
    const auto sample =
        group.minimum(batch == are_finite_.end() ? dataset_.size()
                                                 : first_bad_sample(batch - are_finite_.begin()));
    const std::string value = std::isnan(loss) ? "NaN" : "infinite";
    return sample == dataset_.size()
               ? value
               : formatted("{}, first at sample {} of the evaluation set", value, sample);
  }

  Model& model_;
  const Dataset& dataset_;
  const EvaluationOptions& options_;
  const c10::Device device_;
  const std::vector<Metric> metrics_;
  const SamplerOptions sampler_;
  std::vector<std::int64_t> sizes_;  // of the sums of each metric
  at::Tensor sums_;
  std::vector<at::Tensor> are_finite_;  // the losses of each batch
  std::unique_ptr<Loader> loader_;
  bool has_batch_ = false;  // while the model and the metrics have it
  std::exception_ptr error_;
};

}  // namespace

EvaluationEnd evaluate(Model& model, const Task& task, const EvaluationOptions& options,
                       StopAgreement& stop, ProcessGroup& group) {
  const at::NoGradGuard no_grad;
  const EvalMode eval_mode(model);
  EvaluationShare share(model, task, options, group);
  StopPoller poller(stop);
  // Of a rank.
  const std::int64_t samples =
      (task.eval_set().size() + group.world_size() - 1) / group.world_size();
  std::int64_t batches = (samples + options.batch_size - 1) / options.batch_size;
  if (options.max_batches >= 0) batches = std::min(batches, options.max_batches);
  for (std::int64_t i = 0; i < batches; ++i) {
    failpoint("evaluate");
    if (poller.stop_now()) return {};
    share.add_batch();
  }
  return share.end(group);
}

}  // namespace torchbridge::train
