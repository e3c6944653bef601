// Loss scaling for float16: torch.amp.GradScaler, with all ranks of one mind about what overflowed.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>

#include <torchbridge/train/optim/optimizer.h>
#include <torchbridge/train/group/process_group.h>

namespace torchbridge::train {

struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2, backoff_factor = 0.5;
  std::int64_t growth_interval = 2000;  // steps without overflow until the scale grows
};

// One thread. For each step: scale(loss).backward(), average, unscale() if gradients are clipped, step(), update().
class GradScaler {
 public:
  // Holds a reference to the group. Throws TrainError for factors that do not grow or do not back off.
  explicit GradScaler(ProcessGroup& group, const GradScalerOptions& options = {});

  at::Tensor scale(const at::Tensor& loss) const;

  // Divides the gradients by the scale, once in a step. Collective: whether any rank has found infinity or NaN.
  void unscale(Optimizer& optimizer);

  // Unscales unless that is done, and steps the optimizer where all gradients of all ranks are finite. Says if it did.
  // Python hands "found_inf" to fused optimizers instead, with the same outcome but for an SGD with momentum whose very first
  // step overflows: its buffers there are not initialised.
  bool step(Optimizer& optimizer);

  // After step(): halves the scale after an overflow, doubles it after growth_interval good steps.
  void update();

  double current_scale() const;
  std::int64_t growth_tracker() const;

  // "scale" and "growth_tracker", for a checkpoint; the other entries of Python's state_dict are options here.
  std::map<std::string, double> state() const;
  void load_state(const std::map<std::string, double>& state);

 private:
  ProcessGroup& group_;
  GradScalerOptions options_;
  at::Tensor scale_;           // float32, no dimensions
  at::Tensor growth_tracker_;  // int32, no dimensions
  at::Tensor found_inf_;       // float32; undefined until unscale()
};

}  // namespace torchbridge::train
