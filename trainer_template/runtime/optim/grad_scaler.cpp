#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Device.h>
#include <c10/core/GradMode.h>
#include <torchbridge/errors.h>
#include <torchbridge/optimizer.h>

#include "trainer_template/runtime/tensors/tensor_lists.h"

namespace torchbridge::train {
namespace {

// Finds infinite and NaN gradients on their device, in one pass; the host does not wait for the
// result. Multiplies the gradients of `parameters` by `factor` (float32, no dimensions), in place;
// a factor of 1 does not change their bits. Returns a number above 0 if an element was infinite or
// NaN, else 0: float32, no dimensions, on `device`. It is about this rank's gradients only.
at::Tensor scale_and_find_inf(const std::vector<at::Tensor>& parameters, const at::Tensor& factor,
                              c10::Device device) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> all;
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor gradient = parameter.grad();
    if (gradient.defined()) all.push_back(gradient.is_sparse() ? gradient._values() : gradient);
  }
  at::Tensor found_inf;  // most models have one list: each further operation is a kernel of the GPU
  for (const auto& gradients : by_device_and_type(std::move(all))) {
    at::Tensor found = at::zeros({}, gradients[0].options().dtype(at::kFloat));
    at::_amp_foreach_non_finite_check_and_unscale_(gradients, found, factor.to(found.device()));
    found_inf = found_inf.defined() ? found_inf.add_(found.to(device)) : found.to(device);
  }
  return found_inf.defined() ? found_inf : at::zeros({}, at::device(device).dtype(at::kFloat));
}

}  // namespace

GradScaler::GradScaler(const GradScalerOptions& options, c10::Device device) : options_(options) {
  if (!(options.init_scale > 0)) throw TrainError("GradScaler: init_scale must be above 0");
  if (!(options.growth_factor > 1)) throw TrainError("GradScaler: growth_factor must be above 1");
  if (!(options.backoff_factor < 1 && options.backoff_factor > 0)) {
    throw TrainError("GradScaler: backoff_factor must be between 0 and 1");
  }
  if (options.growth_interval < 1)
    throw TrainError("GradScaler: growth_interval must be at least 1");
  scale_ =
      at::full({}, options.enabled ? options.init_scale : 1, at::device(device).dtype(at::kFloat));
  growth_tracker_ = at::zeros({}, at::device(device).dtype(at::kInt));
}

PartNumbers GradScaler::numbers() const {
  return {{"scale", scale_.item<double>()},
          {"growth_tracker", growth_tracker_.item<double>()},
          {"init_scale", options_.init_scale}};
}

void GradScaler::load(const SavedNumbers& saved) {
  if (saved.find("init_scale").value_or(options_.init_scale) != options_.init_scale) return;
  scale_.fill_(saved.at("scale"));
  growth_tracker_.fill_(saved.count_at("growth_tracker"));
}

at::Tensor GradScaler::scale(const at::Tensor& loss) const {
  return options_.enabled ? loss * scale_ : loss;
}

at::Tensor GradScaler::unscale(Optimizer& optimizer) const {
  if (!options_.enabled && !options_.checks) return at::zeros({}, scale_.options());
  const std::vector<at::Tensor> parameters = optimizer.averaged();
  if (!options_.enabled) return scale_and_find_inf(parameters, scale_, scale_.device());
  for (const at::Tensor& parameter : parameters) {
    if (parameter.grad().defined() && parameter.grad().scalar_type() == at::kHalf) {
      throw TrainError(
          "GradScaler: gradients in float16 cannot be unscaled; keep parameters in float32");
    }
  }
  // The reciprocal is computed in double precision, as in Python.
  return scale_and_find_inf(parameters, scale_.to(at::kDouble).reciprocal().to(at::kFloat),
                            scale_.device());
}

void GradScaler::update(const at::Tensor& found_inf) {
  if (!options_.enabled) return;
  at::_amp_update_scale_(scale_, growth_tracker_, found_inf, options_.growth_factor,
                         options_.backoff_factor, options_.growth_interval);
}

}  // namespace torchbridge::train
