// torch.nn.utils.clip_grad_norm_, bit for bit.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer_template/runtime/optim/optimizer.h"
#include "trainer_template/runtime/process_group/process_group.h"

namespace torchbridge::train {

struct ClipOptions {
  double max_norm = 1;              // infinity: the gradients are measured and left as they are
  double norm_type = 2;             // above 0; infinity for the largest absolute value
  bool error_if_nonfinite = false;  // throw TrainError instead of scaling by a norm that is NaN or infinite
};

// Scales the gradients of all parameters so that their norm, as one vector, is at most max_norm. Returns the norm
// before that (float, no dimensions). The order of parameters decides the last bit: Python programs give them in the
// model's order. Parameters without a gradient are skipped; with no gradient at all the norm is 0, on the device of the
// first parameter.
at::Tensor clip_grad_norm(const std::vector<at::Tensor>& parameters, const ClipOptions& options);

// The same where each rank holds another shard of the gradients (ZeRO), on the group's device; a rank may hold none.
// Collective. The sum over ranks is in float64, so the norm may differ from the one above in its last bit.
at::Tensor clip_grad_norm(const std::vector<at::Tensor>& parameters, const ClipOptions& options, ProcessGroup& group);

// What a training run does with the averaged gradients of each step.
struct GradientClipping {
  double max_norm = 0;                 // 0: no clipping
  bool is_measured = false;            // compute the norm without clipping too; not possible with sparse gradients
  std::vector<at::Tensor> parameters;  // in the model's order; not used with optimizer.has_own_gradients_only()
};

// The same for the gradients that an optimizer is about to use. Returns an undefined tensor if they are neither clipped
// nor measured. Finite gradients may have a norm that overflows: if they are clipped, 1 is then added to `found_inf`
// (float, no dimensions), on its device. Collective with optimizer.has_own_gradients_only().
at::Tensor clip_grad_norm(const Optimizer& optimizer, const GradientClipping& clipping, const at::Tensor& found_inf,
                          ProcessGroup& group);

}  // namespace torchbridge::train
