#include <unordered_set>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/functional/batchnorm.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torchbridge/process_group.h>
#include <torchbridge/sync_batch_norm.h>

#include "bridge/base/message_text.h"
#include "trainer_template/runtime/ddp/sync_batch_norm_function.h"

namespace torchbridge::train {

SyncBatchNormImpl::SyncBatchNormImpl(const torch::nn::BatchNormOptions& options_,
                                     ProcessGroup* process_group)
    : options(options_), group(process_group) {
  SyncBatchNormImpl::reset();
}

SyncBatchNormImpl::SyncBatchNormImpl(const torch::nn::BatchNormOptions& options_,
                                     ProcessGroup* process_group, at::Tensor weight_,
                                     at::Tensor bias_, at::Tensor mean, at::Tensor var,
                                     at::Tensor tracked)
    : options(options_),
      weight(std::move(weight_)),
      bias(std::move(bias_)),
      running_mean(std::move(mean)),
      running_var(std::move(var)),
      num_batches_tracked(std::move(tracked)),
      group(process_group) {
  register_tensors();
}

void SyncBatchNormImpl::reset() {
  const std::int64_t channels = options.num_features();
  if (options.affine()) {
    weight = at::ones({channels}).set_requires_grad(true);
    bias = at::zeros({channels}).set_requires_grad(true);
  }
  if (options.track_running_stats()) {
    running_mean = at::zeros({channels});
    running_var = at::ones({channels});
    num_batches_tracked = at::zeros({}, at::kLong);
  }
  register_tensors();
}

void SyncBatchNormImpl::register_tensors() {
  register_parameter("weight", weight, weight.defined() && weight.requires_grad());
  register_parameter("bias", bias, bias.defined() && bias.requires_grad());
  register_buffer("running_mean", running_mean);
  register_buffer("running_var", running_var);
  register_buffer("num_batches_tracked", num_batches_tracked);
}

// Counts the batch; returns the weight of its statistics among the running ones.
double SyncBatchNormImpl::average_factor() {
  if (is_training() && num_batches_tracked.defined()) {
    num_batches_tracked += 1;
    if (!options.momentum()) return 1.0 / num_batches_tracked.item<double>();
  }
  return options.momentum().value_or(0.0);
}

at::Tensor SyncBatchNormImpl::forward(const at::Tensor& input) {
  if (input.dim() < 2 || input.size(1) != options.num_features()) {
    throw TrainError(formatted("SyncBatchNorm: expected an input of shape (N, {}, ...), not {}",
                               options.num_features(), c10::str(input.sizes())));
  }
  const double momentum = average_factor();
  if (is_training() && group && group->world_size() > 1) {
    return sync_batch_norm({.input = input,
                            .weight = weight,
                            .bias = bias,
                            .running_mean = running_mean,
                            .running_var = running_var,
                            .momentum = momentum,
                            .eps = options.eps()},
                           group->c10d());
  }
  return torch::nn::functional::detail::batch_norm(input, running_mean, running_var, weight, bias,
                                                   is_training() || !options.track_running_stats(),
                                                   momentum, options.eps());
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << "SyncBatchNorm(" << options.num_features() << ", eps=" << options.eps() << ")";
}

namespace {

// The layer that replaces `module`; empty when it is not a BatchNorm.
SyncBatchNorm replacement_of(const torch::nn::Module& module, ProcessGroup& group) {
  const auto convert = [&]<class BatchNorm>(const BatchNorm* from) {
    return from ? SyncBatchNorm(std::make_shared<SyncBatchNormImpl>(*from, &group))
                : SyncBatchNorm(nullptr);
  };
  if (auto layer = convert(dynamic_cast<const torch::nn::BatchNorm1dImpl*>(&module))) return layer;
  if (auto layer = convert(dynamic_cast<const torch::nn::BatchNorm2dImpl*>(&module))) return layer;
  return convert(dynamic_cast<const torch::nn::BatchNorm3dImpl*>(&module));
}

bool is_batch_norm(const torch::nn::Module& module) {
  return dynamic_cast<const torch::nn::BatchNorm1dImpl*>(&module) ||
         dynamic_cast<const torch::nn::BatchNorm2dImpl*>(&module) ||
         dynamic_cast<const torch::nn::BatchNorm3dImpl*>(&module);
}

void check_replaceable(torch::nn::Module& model) {
  std::unordered_set<const torch::nn::Module*> replaceable;
  model.apply([&](torch::nn::Module& module) {
    if (!dynamic_cast<torch::nn::SequentialImpl*>(&module)) return;
    for (const auto& child : module.children()) replaceable.insert(child.get());
  });
  model.apply([&](const std::string& name, torch::nn::Module& module) {
    if (!is_batch_norm(module) || replaceable.contains(&module)) return;
    throw TrainError(
        formatted("BatchNorm '{}' is in no torch::nn::Sequential, so it cannot be replaced: "
                  "declare it as torchbridge::train::SyncBatchNorm",
                  name));
  });
}

}  // namespace

int convert_sync_batch_norm(torch::nn::Module& model, ProcessGroup& group) {
  check_replaceable(model);
  int count = 0;
  model.apply([&](torch::nn::Module& module) {
    if (auto* layer = dynamic_cast<SyncBatchNormImpl*>(&module)) {
      if (!layer->group) layer->group = &group;
      ++count;
    }
    auto* list = dynamic_cast<torch::nn::SequentialImpl*>(&module);
    if (!list) return;
    auto entry = list->begin();
    for (const auto& child : list->named_children()) {
      if (SyncBatchNorm layer = replacement_of(*child.value(), group)) {
        list->replace_module(child.key(), layer.ptr());
        *entry = torch::nn::AnyModule(layer);
      }
      ++entry;
    }
  });
  return count;
}

}  // namespace torchbridge::train
