#include "trainer_template/runtime/training/non_finite.h"

#include <cmath>
#include <sstream>
#include <string>
#include <utility>

#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <c10/core/GradMode.h>
#include <torchbridge/errors.h>
#include <torchbridge/training_step.h>

#include "bridge/base/message_text.h"
#include "trainer_template/runtime/base/console.h"

namespace torchbridge::train {
namespace {

constexpr const char* kSkipped =
    " steps were skipped because of an infinite or NaN loss or gradient; lower --lr, or with fp16 "
    "--loss-scale";

std::string sample_list(const std::vector<std::vector<std::int64_t>>& batches) {
  std::string text;
  for (const auto& batch : batches) {
    for (const std::int64_t sample : batch) text += " " + std::to_string(sample);
  }
  return text;
}

// "step 7: the loss is nan on 1 of 4 ranks (learning rate 0.1); samples of this rank: 5 1".
std::string description(const FinishedStep& step, const RankGroup& group) {
  const StepNumbers& numbers = step.numbers;
  std::ostringstream what;
  what << "step " << step.record.step << ": ";
  if (numbers.bad_losses > 0) {
    const double own = numbers.own_loss;
    what << "the loss is "
         << (std::isnan(own) ? "nan"
             : own > 0       ? "inf"
                             : "-inf")
         << " on " << numbers.bad_losses << " of " << group.world_size() << " ranks";
  } else {
    what << "a gradient, or the norm of the gradients to clip, is infinite or NaN";
  }
  what << " (learning rate " << step.record.learning_rate
       << "); samples of this rank:" << sample_list(step.samples);
  return what.str();
}

}  // namespace

NonFinite::NonFinite(const NonFiniteOptions& options, std::vector<at::Tensor> buffers,
                     RankGroup& group)
    : options_(options), group_(group) {
  if (options_.on_nan == OnNan::kStop) return;
  buffers_ = std::move(buffers);
  for (const at::Tensor& buffer : buffers_) before_.push_back(buffer.detach().clone());
}

void NonFinite::before_step(std::int64_t) {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < buffers_.size(); ++i) before_[i].copy_(buffers_[i]);
}

void NonFinite::after_step(TrainingStep& step) {
  if (buffers_.empty()) return;
  const at::NoGradGuard no_grad;
  const at::Tensor is_bad = step.found_inf().ne(0);
  for (std::size_t i = 0; i < buffers_.size(); ++i)
    buffers_[i].copy_(at::where(is_bad, before_[i], buffers_[i]));
}

void NonFinite::report(const FinishedStep& step) {
  const bool is_concerned = step.numbers.bad_losses == 0 || !std::isfinite(step.numbers.own_loss);
  const bool is_reporter =
      group_.minimum(is_concerned ? group_.rank() : group_.world_size()) == group_.rank();
  if (options_.on_nan == OnNan::kSkip) {
    if (is_reporter)
      print_message(
          formatted("rank {}: {}; the step is skipped", group_.rank(), description(step, group_)));
    return;
  }
  error_ = is_reporter
               ? std::make_exception_ptr(TrainError(
                     description(step, group_) +
                     "; lower --lr, clip with --clip-norm, or skip such steps with --on-nan skip"))
               : std::make_exception_ptr(PeerFailed());
}

void NonFinite::read(const FinishedStep& step) {
  skips_ = step.record.skipped ? skips_ + 1 : 0;
  has_bad_loss_ = step.numbers.bad_losses > 0;
  if (!step.record.skipped) return;
  const bool is_overflow = options_.scales_loss && step.numbers.bad_losses == 0;
  if (!is_overflow) report(step);
  if (error_ || options_.max_skips == 0 || skips_ < options_.max_skips) return;
  error_ = std::make_exception_ptr(TrainError(formatted(
      "step {}: the last {}{}, or raise --max-skips", step.record.step, skips_, kSkipped)));
}

void NonFinite::check_weights(std::int64_t step, const ModelTensors& model) const {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> bad;
  for (const auto& [name, parameter] : model.parameters)
    bad.push_back(parameter.isfinite().all().logical_not());
  if (bad.empty() || !at::stack(bad).any().item<bool>()) return;
  group_.throw_if_aborted();  // the gradients may be of a collective that was aborted
  throw TrainError(
      formatted("a weight is infinite or NaN after step {}; no checkpoint is saved: lower --lr, or "
                "clip with --clip-norm",
                step));
}

void NonFinite::check_end(std::int64_t steps, const Evaluation& evaluation) const {
  const bool none_done = skips_ == steps;
  if (skips_ > 0 && (none_done || !std::isfinite(evaluation.loss)))
    throw TrainError((none_done ? "all " : "the last ") + std::to_string(skips_) + kSkipped);
}

}  // namespace torchbridge::train
