#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <torchbridge/task.h>

#include "bridge/base/message_text.h"
#include "trainer_template/runtime/training/accumulation.h"

namespace torchbridge::train {
namespace {

double ratio(const at::Tensor& sums) { return sums[0].item<double>() / sums[1].item<double>(); }

}  // namespace

at::Tensor Model::forward(const at::Tensor&) {
  throw TrainError(
      "this model has no forward() of one tensor: it needs that, or a forward_batch() with "
      "override");
}

at::Tensor Task::loss(const at::Tensor&, const at::Tensor&) const {
  throw TrainError("this task has neither loss() nor losses()");
}

std::vector<Loss> Task::losses() const {
  const auto mean = [this](const at::Tensor& outputs, const at::Tensor& targets) {
    return loss(outputs, targets);
  };
  return {{"loss", mean}};
}

at::Tensor weight_of(const BatchWeight& weight, const Batch& batch) {
  if (!weight) {
    const auto device = (batch.targets.defined() ? batch.targets : batch.inputs).device();
    return at::full({}, batch.samples(), at::device(device).dtype(at::kDouble));
  }
  const at::Tensor given = weight(batch);
  if (!given.defined() || given.numel() != 1)
    throw TrainError(
        formatted("the task's weight of a batch {}: expected a tensor of one number",
                  given.defined() ? formatted("has {} numbers", given.numel()) : "is undefined"));
  return given.detach().to(at::kDouble).reshape({});
}

Metric weighted_mean(const std::string& name, BatchFunction mean, BatchWeight weight) {
  return {.name = name,
          .size = 2,
          .sums =
              [mean = std::move(mean), weight = std::move(weight)](const Outputs& outputs,
                                                                   const Batch& batch) {
                const at::Tensor own = weight_of(weight, batch);
                const at::Tensor value = mean(outputs, batch).to(at::kDouble).reshape({});
                return at::stack({weight ? weighted(own, value) : value * own, own});
              },
          .value = ratio};
}

Metric mean_over_samples(const std::string& name, BatchFunction mean) {
  return weighted_mean(name, std::move(mean), {});
}

at::Tensor sums_of(const Metric& metric, const Outputs& outputs, const Batch& batch) {
  const at::Tensor sums = metric.sums(outputs, batch);
  if (sums.numel() == metric.size) return sums.to(at::kDouble).reshape({-1});
  throw TrainError(formatted("metric '{}': sums() returned {} numbers, expected its size, {}",
                             metric.name, sums.numel(), metric.size));
}

Metric accuracy() {
  constexpr std::int64_t kIgnored = -100;  // the default of cross_entropy_loss()
  const auto sums = [](const at::Tensor& outputs, const at::Tensor& targets) {
    return at::stack({outputs.argmax(-1).eq(targets).sum(), targets.ne(kIgnored).sum()});
  };
  return {.name = "accuracy", .size = 2, .sums = sums, .value = ratio};
}

}  // namespace torchbridge::train
