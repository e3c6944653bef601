#include "trainer_template/runtime/training/step_sums.h"

#include <cmath>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "trainer_template/runtime/tensors/pinned_memory.h"

namespace torchbridge::train {
namespace {

// Indices of StepSums::numbers: first sums over the ranks, of which those from kLogged on are the
// program's own.
enum Sum { kLoss, kBadLosses, kBadGradients, kStop, kWithoutData, kLogged };
// Behind them, numbers that are not summed.
enum Behind { kOwnLoss, kNorm };

}  // namespace

// Each operation is a kernel: with a small model these are a good part of a step.
StepSums reduce_step(RankGroup& group, const OwnNumbers& own) {
  const at::NoGradGuard no_grad;
  const at::TensorOptions options = own.loss.options();
  const auto one = [&](const at::Tensor& number) { return number.to(options).view(1); };
  const auto vote = [&](double value) {
    return at::full({1}, value, options);
  };                                             // on a GPU without a copy
  const at::Tensor stop = vote(own.votes.stop);  // both votes are 0 in nearly all steps
  const at::Tensor without_data =
      own.votes.without_data == own.votes.stop ? stop : vote(own.votes.without_data);
  // Infinity - infinity is NaN, which is not equal to 0.
  const at::Tensor bad_loss = own.loss.sub(own.loss).ne_(0);
  std::vector<at::Tensor> parts = {one(own.loss), one(bad_loss), one(own.found_inf), stop,
                                   without_data};
  for (const at::Tensor& number : own.logged) parts.push_back(one(number));
  const std::int64_t summed = std::ssize(parts);
  parts.push_back(one(own.loss));
  if (own.norm.defined()) parts.push_back(one(own.norm));
  const at::Tensor numbers = at::cat(parts);
  group.sum(numbers.slice(0, 0, summed));
  // Divided in the loss's own precision, as Python's mean over the ranks is.
  if (group.world_size() > 1) numbers.slice(0, kLoss, kLoss + 1).div_(group.world_size());
  const at::Tensor bad = numbers.slice(0, kBadLosses, kBadGradients + 1).sum();
  return {.found_inf = bad.ne_(0).to(at::kFloat), .numbers = numbers};
}

void StepReader::add(const StepMetrics& record, std::span<const Batch> batches,
                     const StepSums& sums) {
  CopyingStep copying{.step = {.record = record, .samples = {}, .numbers = {}},
                      .numbers = sums.numbers,
                      .copied = {}};
  for (const Batch& batch : batches) copying.step.samples.push_back(batch.indices);
  if (!device_.is_cpu()) {
    copying.numbers = empty_pinned(sums.numbers.sizes(), sums.numbers.scalar_type())
                          .copy_(sums.numbers, /*non_blocking=*/true);
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
    const at::Tensor numbers = oldest.numbers.to(at::kDouble);
    const double* values = numbers.const_data_ptr<double>();
    FinishedStep& step = finished.emplace_back(std::move(oldest.step));
    const auto behind = static_cast<std::int64_t>(kLogged + step.record.logged.size());
    step.numbers = {.loss = values[kLoss],
                    .own_loss = values[behind + kOwnLoss],
                    .bad_losses = std::llround(values[kBadLosses]),
                    .bad_gradient = values[kBadGradients] != 0,
                    .norm = std::nullopt,
                    .votes = {.stop = values[kStop], .without_data = values[kWithoutData]}};
    if (numbers.numel() > behind + kNorm) step.numbers.norm = values[behind + kNorm];
    for (std::size_t i = 0; i < step.record.logged.size(); ++i)
      step.record.logged[i].second = values[kLogged + i] / world_size_;
    step.record.loss = step.numbers.loss;
    step.record.skipped = step.numbers.bad_losses > 0 || step.numbers.bad_gradient;
    const bool has_norm = step.numbers.norm && std::isfinite(*step.numbers.norm);
    if (!step.record.skipped && has_norm) step.record.grad_norm = step.numbers.norm;
    steps_.pop_front();
  }
  return finished;
}

}  // namespace torchbridge::train
