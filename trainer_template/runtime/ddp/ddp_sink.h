// An autograd node at the end of the forward pass, which all outputs of a model share.
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace torchbridge::train {

// Returns copies of the outputs whose backward is one node (Python's _DDPSink). If any of them is
// part of the loss, the backward pass visits the parameters of all, with an undefined gradient for
// those of the others; without it DDP would wait forever for their gradients. `on_backward` (may be
// empty) runs first in each backward pass, on the thread that runs it. Outputs without a gradient
// are returned as they are.
std::vector<at::Tensor> through_sink(std::vector<at::Tensor> outputs,
                                     std::function<void()> on_backward);

}  // namespace torchbridge::train
