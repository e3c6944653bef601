// Memory of the CPU that a GPU copies from and to while the program goes on.
#pragma once

#include <ATen/core/Tensor.h>

namespace torchbridge::train {

// A new tensor on the CPU in memory that is pinned for the accelerator of the process. Where there is none left (the
// limit of locked memory, a small node), in pageable memory, with a line on stderr the first time in a process: copies
// then are as right, and slower. Any thread.
at::Tensor empty_pinned(at::IntArrayRef sizes, at::ScalarType type);

}  // namespace torchbridge::train
