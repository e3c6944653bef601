#include <torchbridge/train/optim/grad_scaler.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torchbridge/train/errors.h>
#include <torchbridge/train/optim/found_inf.h>

#include <vector>

namespace torchbridge::train {

GradScaler::GradScaler(ProcessGroup& group, const GradScalerOptions& options) : group_(group), options_(options) {
  if (!(options.init_scale > 0)) throw TrainError("GradScaler: init_scale must be above 0");
  if (!(options.growth_factor > 1)) throw TrainError("GradScaler: growth_factor must be above 1");
  if (!(options.backoff_factor < 1 && options.backoff_factor > 0)) {
    throw TrainError("GradScaler: backoff_factor must be between 0 and 1");
  }
  if (options.growth_interval < 1) throw TrainError("GradScaler: growth_interval must be at least 1");
  scale_ = at::full({}, options.init_scale, at::kFloat);
  growth_tracker_ = at::zeros({}, at::kInt);
}

at::Tensor GradScaler::scale(const at::Tensor& loss) const { return loss * scale_.to(loss.device()); }

void GradScaler::unscale(Optimizer& optimizer) {
  if (found_inf_.defined()) throw TrainError("GradScaler: unscale() was called twice before update()");
  const std::vector<at::Tensor> parameters = optimizer.averaged();
  for (const at::Tensor& parameter : parameters) {
    if (parameter.grad().defined() && parameter.grad().scalar_type() == at::kHalf) {
      throw TrainError("GradScaler: gradients in float16 cannot be unscaled; keep parameters in float32");
    }
  }
  // In double and back, as Python does.
  const at::Tensor inverse = scale_.to(at::kDouble).reciprocal().to(at::kFloat);
  found_inf_ = scale_and_find_inf(parameters, inverse, at::kCPU);
  group_.sum(found_inf_);
}

bool GradScaler::step(Optimizer& optimizer) {
  if (!found_inf_.defined()) unscale(optimizer);
  if (found_inf_.item<float>() != 0) return false;
  optimizer.step();
  return true;
}

void GradScaler::update() {
  if (!found_inf_.defined()) throw TrainError("GradScaler: update() was called before step()");
  at::_amp_update_scale_(scale_, growth_tracker_, found_inf_, options_.growth_factor, options_.backoff_factor,
                         options_.growth_interval);
  found_inf_.reset();
}

double GradScaler::current_scale() const { return scale_.item<double>(); }

std::int64_t GradScaler::growth_tracker() const { return growth_tracker_.item<std::int64_t>(); }

std::map<std::string, double> GradScaler::state() const {
  return {{"scale", current_scale()}, {"growth_tracker", static_cast<double>(growth_tracker())}};
}

void GradScaler::load_state(const std::map<std::string, double>& state) {
  const auto scale = state.find("scale"), tracker = state.find("growth_tracker");
  if (scale == state.end() || tracker == state.end()) throw TrainError("the state of the GradScaler is not whole");
  scale_.fill_(scale->second);
  growth_tracker_.fill_(tracker->second);
}

}  // namespace torchbridge::train
