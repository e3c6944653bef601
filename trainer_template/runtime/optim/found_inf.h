// Finds infinite and NaN gradients on their device, in one pass; the host does not wait for the
// result.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace torchbridge::train {

// Multiplies the gradients of `parameters` by `factor` (float32, no dimensions), in place; a factor
// of 1 does not change their bits. Returns a number above 0 if an element was infinite or NaN, else
// 0: float32, no dimensions, on `device`. It is about this rank's gradients only.
at::Tensor scale_and_find_inf(const std::vector<at::Tensor>& parameters, const at::Tensor& factor,
                              c10::Device device);

}  // namespace torchbridge::train
