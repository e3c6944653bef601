#include "trainer_template/runtime/training/evaluation.h"

#include <numeric>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torchbridge/data.h>

#include "trainer_template/runtime/base/failpoint.h"
#include "trainer_template/runtime/optim/autocast.h"

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
  std::vector<Metric> metrics = {
      mean_over_samples("loss", [losses](const Outputs& outputs, const Batch& batch) {
        at::Tensor sum = losses.front().mean(outputs, batch);
        for (std::size_t i = 1; i < losses.size(); ++i) sum = sum + losses[i].mean(outputs, batch);
        return sum;
      })};
  if (losses.size() == 1) losses.clear();
  for (Loss& each : losses)
    metrics.push_back(mean_over_samples(each.name + "_loss", std::move(each.mean)));
  for (Metric& each : task.metrics()) metrics.push_back(std::move(each));
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

}  // namespace

std::optional<Evaluation> evaluate(Model& model, const Task& task, const EvaluationOptions& options,
                                   StopAgreement& stop, ProcessGroup& group) {
  const at::NoGradGuard no_grad;
  const EvalMode eval_mode(model);
  const Dataset& dataset = task.eval_set();
  const SamplerOptions sampler{.size = dataset.size(),
                               .world_size = group.world_size(),
                               .rank = group.rank(),
                               .order = Order::kSequential,
                               .allow_uneven_shards = true};
  std::optional<Loader> loader;
  if (samples_per_rank(sampler) > 0) {
    loader.emplace(dataset, sampler,
                   LoaderOptions{.batch_size = options.batch_size,
                                 .workers = options.workers,
                                 .device = group.device(),
                                 .skipped = options.skipped});
  }
  const std::vector<Metric> metrics = metrics_of(task);
  std::vector<std::int64_t> sizes;
  for (const Metric& metric : metrics) sizes.push_back(metric.size);
  const std::int64_t size = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  at::Tensor sums = at::zeros({size}, at::device(group.device()).dtype(at::kDouble));
  StopPoller poller(stop);
  // Samples of a rank.
  const std::int64_t most = (dataset.size() + group.world_size() - 1) / group.world_size();
  for (std::int64_t begin = 0; begin < most; begin += options.batch_size) {
    failpoint("evaluate");
    if (poller.stop_now()) return std::nullopt;
    if (const auto batch = loader ? loader->next() : std::nullopt) {
      sums.add_(sums_of_batch(*batch, model, metrics, options));
    }
  }
  group.sum(sums);
  const std::vector<at::Tensor> of_metrics = sums.to(at::kCPU).split_with_sizes(sizes);
  group.throw_if_aborted();
  Evaluation result{.loss = metrics[0].value(of_metrics[0]), .metrics = {}};
  for (std::size_t i = 1; i < metrics.size(); ++i) {
    result.metrics.emplace_back(metrics[i].name, metrics[i].value(of_metrics[i]));
  }
  return result;
}

}  // namespace torchbridge::train
