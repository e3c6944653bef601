#include <ATen/ops/full_like.h>
#include <ATen/ops/stack.h>
#include <torchbridge/task.h>

#include "bridge/base/message_text.h"

namespace torchbridge::train {

at::Tensor Model::forward(const at::Tensor&) {
  throw TrainError(
      "this model takes a whole batch: it has forward_batch(), and no forward() of one tensor");
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

Metric mean_over_samples(const std::string& name, BatchFunction mean) {
  return {
      .name = name,
      .size = 2,
      .sums =
          [mean = std::move(mean)](const Outputs& outputs, const Batch& batch) {
            const auto samples = static_cast<double>(batch.samples());
            const at::Tensor of_batch = mean(outputs, batch).to(at::kDouble);
            return at::stack({of_batch * samples, at::full_like(of_batch, samples)});
          },
      .value =
          [](const at::Tensor& sums) { return sums[0].item<double>() / sums[1].item<double>(); }};
}

at::Tensor sums_of(const Metric& metric, const Outputs& outputs, const Batch& batch) {
  const at::Tensor sums = metric.sums(outputs, batch);
  if (sums.numel() == metric.size) return sums.to(at::kDouble).reshape({-1});
  throw TrainError(formatted("metric '{}': sums() returned {} numbers, expected its size, {}",
                             metric.name, sums.numel(), metric.size));
}

Metric accuracy() {
  return mean_over_samples("accuracy", [](const at::Tensor& outputs, const at::Tensor& targets) {
    return outputs.argmax(-1).eq(targets).to(at::kDouble).mean();
  });
}

}  // namespace torchbridge::train
