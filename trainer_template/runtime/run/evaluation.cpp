#include <torchbridge/train/run/evaluation.h>

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torchbridge/train/data/loader.h>
#include <torchbridge/train/failpoint.h>
#include <torchbridge/train/optim/autocast.h>

#include <utility>
#include <vector>

namespace torchbridge::train {
namespace {

// While it lives, batch normalisation takes its running statistics, and dropout leaves all as it is.
class EvalMode {
 public:
  explicit EvalMode(Model& model) : model_(model) { model_.eval(); }
  ~EvalMode() { model_.train(); }
  EvalMode(const EvalMode&) = delete;
  EvalMode& operator=(const EvalMode&) = delete;

 private:
  Model& model_;
};

// Adds to the sums: of the loss, of the metrics, of ones.
void add_batch(const Batch& batch, Model& model, const Task& task, const std::vector<Metric>& metrics,
               const EvaluationOptions& options, const at::Tensor& sums) {
  std::optional<Autocast> autocast;
  if (options.precision != c10::kFloat) autocast.emplace(batch.inputs.device().type(), options.precision);
  const at::Tensor outputs = options.forward ? options.forward(batch.inputs) : model.forward(batch.inputs);
  const auto count = static_cast<double>(batch.samples());
  std::int64_t place = 0;
  const auto add = [&](const at::Tensor& mean) { sums[place++].add_(mean.to(at::kDouble), count); };
  add(task.loss(outputs, batch.targets));
  for (const Metric& metric : metrics) add(metric.mean(outputs, batch.targets));
  sums[place].add_(count);
}

}  // namespace

std::optional<Evaluation> evaluate(Model& model, const Task& task, DistributedDataParallel& ddp,
                                   const EvaluationOptions& options, StopAgreement& stop, ProcessGroup& group) {
  const at::NoGradGuard no_grad;
  ddp.synchronize_buffers();
  const EvalMode eval_mode(model);
  const Dataset& dataset = task.eval_set();
  const SamplerOptions sampler{.size = dataset.size(),
                               .world_size = group.world_size(),
                               .rank = group.rank(),
                               .order = Order::kSequential,
                               .each_once = true};
  std::optional<Loader> loader;
  if (samples_per_rank(sampler) > 0) {
    loader.emplace(
        dataset, sampler,
        LoaderOptions{.batch_size = options.batch_size, .workers = options.workers, .device = group.device()});
  }
  const std::vector<Metric> metrics = task.metrics();
  at::Tensor sums = at::zeros({std::ssize(metrics) + 2}, at::device(group.device()).dtype(at::kDouble));
  StopRounds rounds(stop);
  const std::int64_t most = (dataset.size() + group.world_size() - 1) / group.world_size();  // samples of a rank
  for (std::int64_t begin = 0; begin < most; begin += options.batch_size) {
    failpoint("evaluate");
    if (rounds.stop_now()) return std::nullopt;
    if (const auto batch = loader ? loader->next() : std::nullopt)
      add_batch(*batch, model, task, metrics, options, sums);
  }
  group.sum(sums);
  sums = sums.to(at::kCPU);
  const double* sum = sums.const_data_ptr<double>();
  const double ones = sum[metrics.size() + 1];
  Evaluation result{.loss = sum[0] / ones, .metrics = {}};
  for (std::size_t i = 0; i < metrics.size(); ++i) result.metrics.emplace_back(metrics[i].name, sum[i + 1] / ones);
  return result;
}

}  // namespace torchbridge::train
