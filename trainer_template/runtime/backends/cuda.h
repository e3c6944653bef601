// libtorch's part for CUDA, which no program links: it costs a process 350 MB and 0.1 s even where there is no GPU.
#pragma once

#include <c10/core/Device.h>

namespace torchbridge::train {

// Opens libtorch_cuda.so beside the libtorch_cpu.so of this process, unless that is done. libtorch asks once whether
// CUDA is there and remembers the answer, so this comes before at::manual_seed and the like. Throws TrainError where
// libtorch is a build for the CPU.
void open_cuda();

// That, and makes `device`, which has an index, the current one of the calling thread: what it opens by the way, and
// memory that is pinned, then belong to this GPU and not to the first. Throws TrainError where CUDA cannot use the GPU
// that the driver shows.
void use_cuda(c10::Device device);

}  // namespace torchbridge::train
