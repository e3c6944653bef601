#include <cmath>
#include <limits>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torchbridge/errors.h>
#include <torchbridge/optimizer.h>
#include <torchbridge/process_group.h>

#include "bridge/base/message_text.h"
#include "trainer_template/runtime/tensors/tensor_lists.h"

namespace torchbridge::train {
namespace {

using Tensors = std::vector<at::Tensor>;

std::vector<Tensors> sorted_gradients(const Tensors& parameters) {
  Tensors gradients;
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor gradient = parameter.grad();
    if (!gradient.defined()) continue;
    if (gradient.is_sparse())
      throw TrainError("clip_grad_norm: a sparse gradient cannot be clipped");
    gradients.push_back(gradient);
  }
  return by_device_and_type(std::move(gradients));
}

at::Tensor norm_of(const std::vector<Tensors>& lists, double norm_type, c10::Device device) {
  if (lists.empty()) return at::zeros({}, at::device(device).dtype(at::kFloat));
  Tensors norms;
  for (const Tensors& list : lists) {
    for (at::Tensor& norm : at::_foreach_norm(list, norm_type))
      norms.push_back(norm.to(lists[0][0].device()));
  }
  return at::linalg_vector_norm(at::stack(norms), norm_type);
}

void scale(const std::vector<Tensors>& lists, const at::Tensor& norm, const ClipOptions& options) {
  if (options.error_if_nonfinite && !std::isfinite(norm.item<double>())) {
    throw TrainError(
        formatted("clip_grad_norm: the norm of the gradients is {}: they cannot be clipped",
                  std::to_string(norm.item<double>())));
  }
  if (std::isinf(options.max_norm)) return;
  // Unconditional, as in Python: on a GPU a condition would make the host wait for the norm.
  // Python's number / tensor multiplies by the reciprocal, which decides the last bit.
  const at::Tensor coefficient =
      at::clamp((norm + 1e-6).reciprocal() * options.max_norm, std::nullopt, 1.0);
  for (const Tensors& list : lists) at::_foreach_mul_(list, coefficient.to(list[0].device()));
}

void check(const ClipOptions& options) {
  if (!(options.norm_type > 0)) throw TrainError("clip_grad_norm: norm_type must be above 0");
}

}  // namespace

at::Tensor clip_grad_norm(const Tensors& parameters, const ClipOptions& options) {
  const at::NoGradGuard no_grad;
  check(options);
  const auto lists = sorted_gradients(parameters);
  const c10::Device device = parameters.empty() ? c10::Device(c10::kCPU) : parameters[0].device();
  const at::Tensor norm = norm_of(lists, options.norm_type, device);
  scale(lists, norm, options);
  return norm;
}

at::Tensor clip_grad_norm(const Tensors& parameters, const ClipOptions& options,
                          ProcessGroup& group) {
  const at::NoGradGuard no_grad;
  check(options);
  const auto lists = sorted_gradients(parameters);
  const at::Tensor own = norm_of(lists, options.norm_type, group.device());
  at::Tensor norm = own.to(at::kDouble);
  if (std::isinf(options.norm_type)) {
    c10d::AllreduceOptions largest;
    largest.reduceOp = c10d::ReduceOp::MAX;
    Tensors norms = {norm};
    group.c10d()->allreduce(norms, largest)->wait();
  } else {
    norm = at::pow(norm, options.norm_type);
    group.sum(norm);
    norm = at::pow(norm, 1 / options.norm_type);
  }
  norm = norm.to(own.scalar_type());
  scale(lists, norm, options);
  return norm;
}

at::Tensor clip_grad_norm(ProcessGroup& group, const Optimizer& optimizer,
                          const GradientClipping& clipping, const at::Tensor& found_inf) {
  const bool clips = clipping.max_norm > 0;
  if (!clips && !clipping.is_measured) return {};
  const ClipOptions options{.max_norm = clips ? clipping.max_norm
                                              : std::numeric_limits<double>::infinity()};
  const Tensors parameters =
      clipping.parameters.empty() ? optimizer.averaged() : clipping.parameters;
  const at::Tensor norm = optimizer.has_own_gradients_only()
                              ? clip_grad_norm(optimizer.averaged(), options, group)
                              : clip_grad_norm(parameters, options);
  const at::NoGradGuard no_grad;
  if (clips) found_inf.add_(norm.sub(norm).to(found_inf.device()));  // inf - inf is NaN
  return norm;
}

}  // namespace torchbridge::train
