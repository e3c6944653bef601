// Loss scaling for float16: torch.amp.GradScaler, with all values on the device.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "trainer_template/runtime/base/train_state.h"
#include "trainer_template/runtime/optim/optimizer.h"

namespace torchbridge::train {

struct GradScalerOptions {
  bool enabled = true;  // false: losses are not scaled, and gradients are only checked
  double init_scale = 65536;
  double growth_factor = 2, backoff_factor = 0.5;
  std::int64_t growth_interval = 2000;  // steps without overflow until the scale grows
};

// For one thread. For each step: scale(loss).backward(), average the gradients, unscale(), clip, reduce the results of
// unscale() over the ranks, and pass the reduced number to the optimizer's step() and to update(). Only state() waits
// for the device.
class GradScaler {
 public:
  // Throws TrainError for a growth factor of at most 1 or a backoff factor of at least 1. Resumes from `state` if it
  // has a value.
  GradScaler(const GradScalerOptions& options, c10::Device device, const std::optional<GradScalerState>& state = {});

  // The loss times the scale, on the scaler's device.
  at::Tensor scale(const at::Tensor& loss) const;

  // Divides the averaged gradients by the scale; call it once in a step. Returns a number above 0 if one of this rank's
  // gradients was infinite or NaN, else 0: float32, no dimensions. Python passes it to fused optimizers in the same
  // way.
  at::Tensor unscale(Optimizer& optimizer) const;

  // Backs off if found_inf, the same on all ranks, is not 0; grows after growth_interval steps in a row with 0.
  void update(const at::Tensor& found_inf);

  // Waits for the device. Nothing if it is not enabled. The other entries of Python's state_dict are options here.
  std::optional<GradScalerState> state() const;

 private:
  GradScalerOptions options_;
  at::Tensor scale_;           // float32, no dimensions
  at::Tensor growth_tracker_;  // int32, no dimensions
};

}  // namespace torchbridge::train
