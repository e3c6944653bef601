#include "trainer_template/runtime/ddp/delayed_all_reduce.h"

#include <algorithm>

#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "trainer_template/runtime/ddp/parameter_sync.h"

namespace torchbridge::train {

DelayedAllReduce::DelayedAllReduce(std::vector<at::Tensor> parameters, const at::Tensor& until,
                                   ProcessGroup& group)
    : group_(group), parameters_(std::move(parameters)), until_(until) {
  broadcast_values(parameters_, group_);
  std::int64_t size = 0;
  for (const at::Tensor& parameter : parameters_) size += parameter.numel();
  buffer_ = at::zeros({size}, parameters_.front().options().requires_grad(false));
  std::int64_t begin = 0;
  for (const at::Tensor& parameter : parameters_) {
    views_.push_back(buffer_.narrow(0, begin, parameter.numel()).view(parameter.sizes()));
    begin += parameter.numel();
  }
  hook_ = until_.register_hook([this](const at::Tensor&) { start(); });
}

DelayedAllReduce::~DelayedAllReduce() { until_.remove_hook(hook_); }

void DelayedAllReduce::begin_backward() {
  const auto has_none = [](const at::Tensor& parameter) { return !parameter.grad().defined(); };
  const bool all_new = std::all_of(parameters_.begin(), parameters_.end(), has_none);
  if (all_new) buffer_.zero_();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!has_none(parameters_[i])) continue;
    if (!all_new) views_[i].zero_();
    parameters_[i].mutable_grad() = views_[i];
  }
}

void DelayedAllReduce::start() {
  buffer_.div_(group_.world_size());
  std::vector<at::Tensor> tensors = {buffer_};
  torch::autograd::Engine::get_default_engine().queue_callback(
      [work = group_.c10d()->allreduce(tensors)] { work->wait(); });
}

}  // namespace torchbridge::train
