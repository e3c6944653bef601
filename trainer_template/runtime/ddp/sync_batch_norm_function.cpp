#include "trainer_template/runtime/ddp/sync_batch_norm_function.h"

#include <ATen/ops/batch_norm_backward_elemt.h>
#include <ATen/ops/batch_norm_backward_reduce.h>
#include <ATen/ops/batch_norm_elemt.h>
#include <ATen/ops/batch_norm_gather_stats_with_counts.h>
#include <ATen/ops/batch_norm_stats.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/var_mean.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "trainer_template/runtime/backends/c10d_versions.h"

namespace torchbridge::train {
namespace {

using torch::autograd::variable_list;

// The statistics of all ranks' batches together, one value for each channel; `counts` is the number
// of values in a channel on each rank that has any.
struct Statistics {
  at::Tensor mean, invstd, counts;
};

bool is_channels_last(const at::Tensor& tensor) {
  return tensor.is_contiguous(at::MemoryFormat::ChannelsLast) ||
         tensor.is_contiguous(at::MemoryFormat::ChannelsLast3d);
}

at::Tensor contiguous(const at::Tensor& tensor) {
  return is_channels_last(tensor) ? tensor : tensor.contiguous();
}

std::vector<std::int64_t> all_but_channels(const at::Tensor& input) {
  std::vector<std::int64_t> dims;
  for (std::int64_t dim = 0; dim < input.dim(); ++dim) {
    if (dim != 1) dims.push_back(dim);
  }
  return dims;
}

// (C) as (1, C, 1, ...), to broadcast over the input.
at::Tensor by_channel(const at::Tensor& values, const at::Tensor& input) {
  std::vector<std::int64_t> shape(input.dim(), 1);
  shape[1] = values.numel();
  return values.view(shape);
}

std::int64_t values_per_channel(const at::Tensor& input) { return input.numel() / input.size(1); }

// One row a rank.
at::Tensor gather(const at::Tensor& row, c10d::ProcessGroup& group) {
  at::Tensor rows = at::empty({group.getSize(), row.numel()}, row.options());
  at::Tensor flat = rows.view({-1}), own = row;
  group.TORCHBRIDGE_ALL_GATHER_SINGLE(flat, own)->wait();
  return rows;
}

void sum(const at::Tensor& tensor, c10d::ProcessGroup& group) {
  std::vector<at::Tensor> tensors = {tensor};
  group.allreduce(tensors)->wait();
}

// Half precision is summed up in float, as the GPU's kernels do.
at::ScalarType accumulated_in(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

namespace gpu {

Statistics statistics(const SyncBatchNormInputs& in, const at::Tensor& input,
                      c10d::ProcessGroup& group) {
  const std::int64_t channels = input.size(1);
  at::Tensor row;
  if (input.numel() > 0) {
    const auto [mean, invstd] = at::batch_norm_stats(input, in.eps);
    row = at::cat({mean, invstd, at::full({1}, values_per_channel(input), mean.options())});
  } else {
    row = at::zeros({2 * channels + 1}, input.options().dtype(accumulated_in(input.scalar_type())));
  }
  at::Tensor rows = gather(row, group);
  rows = rows.index({rows.select(1, 2 * channels).ge(1)});
  const at::Tensor counts = rows.select(1, 2 * channels).contiguous();
  const auto [mean, invstd] = at::batch_norm_gather_stats_with_counts(
      input, rows.narrow(1, 0, channels), rows.narrow(1, channels, channels), in.running_mean,
      in.running_var, in.momentum, in.eps,
      in.running_mean.defined() ? counts.to(in.running_mean.scalar_type()) : counts);
  return {mean, invstd, counts.to(at::kInt)};
}

at::Tensor normalise(const SyncBatchNormInputs& in, const at::Tensor& input,
                     const Statistics& all) {
  return at::batch_norm_elemt(input, in.weight, in.bias, all.mean, all.invstd, in.eps);
}

}  // namespace gpu

// The same with operations that the CPU has. Sums over ranks are in double, and the variance itself
// is gathered, which is more exact.
namespace cpu {

Statistics statistics(const SyncBatchNormInputs& in, const at::Tensor& input,
                      c10d::ProcessGroup& group) {
  const std::int64_t channels = input.size(1);
  const auto type = accumulated_in(input.scalar_type());
  at::Tensor row = at::zeros({2 * channels + 1}, at::kDouble);
  if (input.numel() > 0) {
    const auto [variance, mean] =
        at::var_mean(input.to(type), all_but_channels(input), /*correction=*/at::Scalar(0), false);
    row = at::cat({mean.to(at::kDouble), variance.to(at::kDouble),
                   at::full({1}, values_per_channel(input), at::kDouble)});
  }
  const at::Tensor rows = gather(row, group);
  const at::Tensor counts = rows.narrow(1, 2 * channels, 1), means = rows.narrow(1, 0, channels);
  const at::Tensor total = counts.sum();
  const at::Tensor mean = (means * counts).sum(0) / total;
  const at::Tensor squares =
      ((rows.narrow(1, channels, channels) + (means - mean).square()) * counts).sum(0);
  if (in.running_mean.defined()) {
    in.running_mean.mul_(1 - in.momentum).add_(mean, in.momentum);
    in.running_var.mul_(1 - in.momentum).add_(squares / (total - 1), in.momentum);
  }
  return {mean.to(type), (squares / total + in.eps).rsqrt().to(type), counts.view({-1})};
}

at::Tensor normalise(const SyncBatchNormInputs& in, const at::Tensor& input,
                     const Statistics& all) {
  // As in eval mode, with these statistics for the running ones.
  const at::Tensor variance = all.invstd.to(at::kDouble).pow(-2).to(all.invstd.scalar_type());
  return std::get<0>(
      at::native_batch_norm(input, in.weight, in.bias, all.mean, variance, false, 0, 0));
}

}  // namespace cpu

struct SyncBatchNormFunction : torch::autograd::Function<SyncBatchNormFunction> {
  // weight and bias are optional, because an undefined tensor is not counted among the inputs that
  // may need a gradient and an empty optional is.
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& given,
                            const std::optional<at::Tensor>& weight,
                            const std::optional<at::Tensor>& bias,
                            const SyncBatchNormInputs& inputs,
                            const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
    SyncBatchNormInputs in = inputs;
    in.weight = weight ? weight->contiguous() : at::Tensor();
    in.bias = bias.value_or(at::Tensor());
    const at::Tensor input = contiguous(given);
    const bool on_cpu = input.is_cpu();
    const Statistics all =
        on_cpu ? cpu::statistics(in, input, *group) : gpu::statistics(in, input, *group);
    context->save_for_backward({input, in.weight, all.mean, all.invstd, all.counts});
    context->saved_data["group"] = c10::IValue::make_capsule(group);
    if (input.numel() == 0) return at::empty_like(input);
    return on_cpu ? cpu::normalise(in, input, all) : gpu::normalise(in, input, all);
  }

  static variable_list backward(torch::autograd::AutogradContext* context,
                                variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &input = saved[0], &weight = saved[1];
    const Statistics all{saved[2], saved[3], saved[4]};
    const auto group = c10::static_intrusive_pointer_cast<c10d::ProcessGroup>(
        context->saved_data["group"].toCapsule());
    const at::Tensor output_gradient = contiguous(gradients[0]);
    const bool input_needs = context->needs_input_grad(0);
    variable_list result(5);
    if (input.numel() == 0) {
      // Its peers wait for the sum.
      if (input_needs) {
        sum(at::zeros(
                {2 * input.size(1)},
                all.mean.options().dtype(input.is_cpu() ? at::kDouble : all.mean.scalar_type())),
            *group);
        result[0] = at::zeros_like(input);
      }
      if (weight_needs(context, weight)) result[1] = at::zeros_like(weight);
      if (bias_needs(context, weight)) result[2] = at::zeros_like(weight);
      return result;
    }
    if (input.is_cpu()) {
      backward_on_cpu(context, output_gradient, input, weight, all, *group, result);
    } else {
      backward_on_gpu(context, output_gradient, input, weight, all, *group, result);
    }
    return result;
  }

 private:
  // Both are there or neither.
  static bool weight_needs(torch::autograd::AutogradContext* context, const at::Tensor& weight) {
    return weight.defined() && context->needs_input_grad(1);
  }
  static bool bias_needs(torch::autograd::AutogradContext* context, const at::Tensor& weight) {
    return weight.defined() && context->needs_input_grad(2);
  }

  static void backward_on_gpu(torch::autograd::AutogradContext* context,
                              const at::Tensor& output_gradient, const at::Tensor& input,
                              const at::Tensor& weight, const Statistics& all,
                              c10d::ProcessGroup& group, variable_list& result) {
    const bool input_needs = context->needs_input_grad(0);
    auto [sum_dy, sum_dy_xmu, weight_gradient, bias_gradient] = at::batch_norm_backward_reduce(
        output_gradient, input, all.mean, all.invstd, weight, input_needs,
        weight_needs(context, weight), bias_needs(context, weight));
    if (input_needs) {
      const at::Tensor sums = at::cat({sum_dy, sum_dy_xmu});
      sum(sums, group);
      const std::vector<at::Tensor> halves = sums.chunk(2);
      result[0] = at::batch_norm_backward_elemt(
          output_gradient, input, all.mean, all.invstd,
          weight.defined() ? weight.to(all.mean.scalar_type()) : weight, halves[0], halves[1],
          all.counts);
    }
    if (weight_needs(context, weight)) result[1] = weight_gradient;
    if (bias_needs(context, weight)) result[2] = bias_gradient;
  }

  static void backward_on_cpu(torch::autograd::AutogradContext* context,
                              const at::Tensor& output_gradient, const at::Tensor& input,
                              const at::Tensor& weight, const Statistics& all,
                              c10d::ProcessGroup& group, variable_list& result) {
    const auto type = all.mean.scalar_type();
    const auto dims = all_but_channels(input);
    const at::Tensor dy = output_gradient.to(type),
                     centred = input.to(type) - by_channel(all.mean, input);
    const at::Tensor sum_dy = dy.sum(dims), sum_dy_xmu = (dy * centred).sum(dims);
    if (context->needs_input_grad(0)) {
      const at::Tensor sums = at::cat({sum_dy, sum_dy_xmu}).to(at::kDouble);
      sum(sums, group);
      const at::Tensor means = sums / all.counts.sum();
      const std::int64_t channels = input.size(1);
      const at::Tensor mean_dy = means.narrow(0, 0, channels).to(type);
      const at::Tensor slope =
          (means.narrow(0, channels, channels) * all.invstd.to(at::kDouble).square()).to(type);
      const at::Tensor scale = weight.defined() ? all.invstd * weight.to(type) : all.invstd;
      result[0] = ((dy - by_channel(mean_dy, input) - centred * by_channel(slope, input)) *
                   by_channel(scale, input))
                      .to(input.scalar_type());
    }
    if (weight_needs(context, weight))
      result[1] = (sum_dy_xmu * all.invstd).to(weight.scalar_type());
    if (bias_needs(context, weight)) result[2] = sum_dy.to(weight.scalar_type());
  }
};

}  // namespace

at::Tensor sync_batch_norm(const SyncBatchNormInputs& inputs,
                           const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  const auto if_defined = [](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  return SyncBatchNormFunction::apply(inputs.input, if_defined(inputs.weight),
                                      if_defined(inputs.bias), inputs, group);
}

}  // namespace torchbridge::train
