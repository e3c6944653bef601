#include "trainer_template/runtime/training/task.h"

#include <ATen/ops/full_like.h>
#include <ATen/ops/stack.h>

namespace torchbridge::train {

Metric mean_over_samples(const std::string& name, BatchFunction mean) {
  return {.name = name,
          .size = 2,
          .sums =
              [mean = std::move(mean)](const at::Tensor& outputs, const at::Tensor& targets) {
                const auto samples = static_cast<double>(targets.size(0));
                const at::Tensor of_batch = mean(outputs, targets).to(at::kDouble);
                return at::stack({of_batch * samples, at::full_like(of_batch, samples)});
              },
          .value = [](const at::Tensor& sums) { return sums[0].item<double>() / sums[1].item<double>(); }};
}

at::Tensor sums_of(const Metric& metric, const at::Tensor& outputs, const at::Tensor& targets) {
  const at::Tensor sums = metric.sums(outputs, targets);
  if (sums.numel() == metric.size) return sums.to(at::kDouble).reshape({-1});
  throw TrainError("metric '" + metric.name + "': sums() returned " + std::to_string(sums.numel()) +
                   " numbers, expected its size, " + std::to_string(metric.size));
}

Metric accuracy() {
  return mean_over_samples("accuracy", [](const at::Tensor& outputs, const at::Tensor& targets) {
    return outputs.argmax(-1).eq(targets).to(at::kDouble).mean();
  });
}

}  // namespace torchbridge::train
