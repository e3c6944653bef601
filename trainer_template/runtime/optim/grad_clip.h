// torch.nn.utils.clip_grad_norm_, bit for bit.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer_template/runtime/process_group/process_group.h"
#include "trainer_template/runtime/optim/optimizer.h"

namespace torchbridge::train {

struct ClipOptions {
  double max_norm = 1;              // infinity: the gradients are measured and left as they are
  double norm_type = 2;             // above 0; infinity for the largest absolute value
  bool error_if_nonfinite = false;  // throw TrainError instead of scaling by a norm that is NaN or infinite
};

// Scales the gradients of all parameters so that their norm, as one vector, is at most max_norm; returns the norm it
// was before (float, no dimensions). The order of parameters decides the last bit: Python programs give them in the
// model's. Parameters without a gradient are left alone; with no gradient at all the norm is 0, on the device of the
// first parameter.
at::Tensor clip_grad_norm(const std::vector<at::Tensor>& parameters, const ClipOptions& options);

// The same where each rank holds another part of the gradients (ZeRO), on the group's device; a rank may hold none.
// Collective. The sum over ranks is in float64, so the norm may differ from the one above in its last bit.
at::Tensor clip_grad_norm(const std::vector<at::Tensor>& parameters, const ClipOptions& options, ProcessGroup& group);

// What a training run does with the averaged gradients of each step.
struct GradientClipping {
  double max_norm = 0;                 // 0: they are not clipped
  bool is_measured = false;            // the norm is wanted also where they are not clipped; not for sparse gradients
  std::vector<at::Tensor> parameters;  // in the model's order; with optimizer.has_own_gradients_only() those are taken
};

// The same for the gradients that an optimizer is about to use; an undefined tensor where the norm is neither needed
// nor wanted. Gradients that are all finite may have a norm that is not: where they are clipped, `found_inf` (float, no
// dimensions) is raised then, on its device. Collective where each rank holds a part of the gradients.
at::Tensor clip_grad_norm(const Optimizer& optimizer, const GradientClipping& clipping, const at::Tensor& found_inf,
                          ProcessGroup& group);

}  // namespace torchbridge::train
