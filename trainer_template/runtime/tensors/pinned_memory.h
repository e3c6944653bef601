// Memory of the CPU that a GPU copies from and to while the program continues.
#pragma once

#include <ATen/core/Tensor.h>

namespace torchbridge::train {

// A new tensor on the CPU in memory that is pinned for the accelerator of the process. Where none
// is left (the limit of locked memory, a small node), in pageable memory, with a line on stderr the
// first time in a process: copies are slower then. Throws c10::AcceleratorError where the device is
// broken. Any thread.
at::Tensor empty_pinned(at::IntArrayRef sizes, at::ScalarType type);

}  // namespace torchbridge::train
