// Infinite and NaN gradients, found where they are: one pass, for whose result nothing waits.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace torchbridge::train {

// Multiplies the gradients of `parameters` by `factor` (float32, no dimensions), in place; 1 leaves their bits as they
// are. Returns a number above 0 where an element was infinite or NaN, and else 0: float32, no dimensions, on `device`.
// Of this rank alone.
at::Tensor scale_and_find_inf(const std::vector<at::Tensor>& parameters, const at::Tensor& factor, c10::Device device);

}  // namespace torchbridge::train
