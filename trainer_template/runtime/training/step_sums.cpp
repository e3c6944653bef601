#include "trainer_template/runtime/training/step_sums.h"

#include <cmath>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "trainer_template/runtime/tensors/pinned_memory.h"

namespace torchbridge::train {
namespace {

// Indices of StepSums::numbers: kReduced sums over the ranks, then numbers that are not summed.
enum Index { kLoss, kBadLosses, kBadGradients, kStop, kWithoutData, kReduced, kMean = kReduced, kOwnLoss, kNorm };

// 1 or 0 as a number: infinity - infinity is NaN, which is not equal to 0.
at::Tensor is_not_finite(const at::Tensor& number) { return number.sub(number).ne(0).to(number.scalar_type()); }

}  // namespace

StepSums reduce_step(const at::Tensor& loss, const at::Tensor& found_inf, const at::Tensor& norm,
                     const StopAgreement::Votes& votes, RankGroup& group) {
  const at::NoGradGuard no_grad;
  const auto number = [&](double value) { return at::full({}, value, loss.options()); };  // on a GPU without a copy
  const at::Tensor sums = at::stack(
      {loss, is_not_finite(loss), found_inf.to(loss.options()), number(votes.stop), number(votes.without_data)});
  group.sum(sums);
  const at::Tensor bad = sums.slice(0, kBadLosses, kBadGradients + 1).sum();
  // Divided in the loss's own precision, as Python's mean over the ranks is.
  std::vector<at::Tensor> unreduced = {sums[kLoss].div(group.world_size()), loss};
  if (norm.defined()) unreduced.push_back(norm.to(loss.options()));
  return {.found_inf = bad.gt(0).to(at::kFloat), .numbers = at::cat({sums, at::stack(unreduced)}).to(at::kDouble)};
}

void StepReader::add(const StepMetrics& record, std::span<const Batch> batches, const StepSums& sums) {
  CopyingStep copying{.step = {.record = record, .samples = {}, .numbers = {}}, .numbers = sums.numbers, .copied = {}};
  for (const Batch& batch : batches) copying.step.samples.push_back(batch.indices);
  if (!device_.is_cpu()) {
    copying.numbers =
        empty_pinned(sums.numbers.sizes(), sums.numbers.scalar_type()).copy_(sums.numbers, /*non_blocking=*/true);
    copying.copied.emplace(device_.type());
    copying.copied->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  }
  steps_.push_back(std::move(copying));
}

std::vector<FinishedStep> StepReader::read(bool all) {
  std::vector<FinishedStep> finished;
  while (steps_.size() > (all ? 0 : lag_)) {
    CopyingStep& oldest = steps_.front();
    if (oldest.copied) oldest.copied->synchronize();
    const double* values = oldest.numbers.const_data_ptr<double>();
    FinishedStep& step = finished.emplace_back(std::move(oldest.step));
    step.numbers = {.loss = values[kMean],
                    .own_loss = values[kOwnLoss],
                    .bad_losses = std::llround(values[kBadLosses]),
                    .bad_gradient = values[kBadGradients] > 0,
                    .norm = std::nullopt,
                    .votes = {.stop = values[kStop], .without_data = values[kWithoutData]}};
    if (oldest.numbers.numel() > kNorm) step.numbers.norm = values[kNorm];
    step.record.loss = step.numbers.loss;
    step.record.skipped = step.numbers.bad_losses > 0 || step.numbers.bad_gradient;
    const bool has_norm = step.numbers.norm && std::isfinite(*step.numbers.norm);
    if (!step.record.skipped && has_norm) step.record.grad_norm = step.numbers.norm;
    steps_.pop_front();
  }
  return finished;
}

}  // namespace torchbridge::train
