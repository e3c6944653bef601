// Loads libtorch_cuda, which no program links: it costs a process 350 MB and 0.1 s even on a
// machine without a GPU.
#pragma once

#include <c10/core/Device.h>

namespace torchbridge::train {

// Opens libtorch_cuda.so from the folder of this process's libtorch_cpu.so, if it is not open.
// libtorch checks only once whether CUDA is available, so this must come before at::manual_seed and
// the like. Throws TrainError where libtorch is a build for the CPU.
void open_cuda();

// Whether libtorch has CUDA and the driver shows a GPU. Opens the driver alone.
bool has_gpu();

// open_cuda(), then makes `device`, which has an index, the current one of the calling thread, so
// that contexts and pinned memory belong to this GPU and not to the first. Throws TrainError where
// CUDA cannot use the GPU that the driver shows.
void use_cuda(c10::Device device);

}  // namespace torchbridge::train
