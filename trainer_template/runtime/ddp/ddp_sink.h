// A step at the end of the forward pass that all outputs of a model go through together.
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace torchbridge::train {

// Returns copies of the outputs whose backward is one node (Python's _DDPSink). As soon as any of them is part of the
// loss, the backward pass visits the parameters of all, those of the others with an undefined gradient; else DDP would
// wait for gradients that never come. `on_backward` (may be empty) runs first in each backward pass, on the thread that
// runs it. Outputs without a gradient are returned as they are.
std::vector<at::Tensor> through_sink(std::vector<at::Tensor> outputs, std::function<void()> on_backward);

}  // namespace torchbridge::train
