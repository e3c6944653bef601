// Loss scaling for float16: torch.amp.GradScaler, entirely on the device.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "trainer_template/runtime/optim/optimizer.h"
#include "trainer_template/runtime/base/train_state.h"

namespace torchbridge::train {

struct GradScalerOptions {
  bool enabled = true;  // false: losses stay as they are, and gradients are only looked at
  double init_scale = 65536;
  double growth_factor = 2, backoff_factor = 0.5;
  std::int64_t growth_interval = 2000;  // steps without overflow until the scale grows
};

// One thread. For each step: scale(loss).backward(), average, unscale(), clip, make one number of what unscale() found
// on all ranks, give it to the optimizer's step() and to update(). No call but state() waits for the device.
class GradScaler {
 public:
  // Throws TrainError for factors that do not grow or do not back off. Goes on from `state` where that has a value.
  GradScaler(const GradScalerOptions& options, c10::Device device, const std::optional<GradScalerState>& state = {});

  // On the device of the scaler.
  at::Tensor scale(const at::Tensor& loss) const;

  // Divides the averaged gradients by the scale, once in a step. Returns a number above 0 where one of this rank's was
  // infinite or NaN, and else 0: float32, no dimensions. Python hands it to fused optimizers in the same way.
  at::Tensor unscale(Optimizer& optimizer) const;

  // Backs off where found_inf, the same on all ranks, is not 0; grows after growth_interval steps where it was.
  void update(const at::Tensor& found_inf);

  // Waits for the device. Nothing where it is not enabled; the other entries of Python's state_dict are options here.
  std::optional<GradScalerState> state() const;

 private:
  GradScalerOptions options_;
  at::Tensor scale_;           // float32, no dimensions
  at::Tensor growth_tracker_;  // int32, no dimensions
};

}  // namespace torchbridge::train
