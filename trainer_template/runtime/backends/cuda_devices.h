// Which GPU a rank uses.
#pragma once

#include <string>
#include <vector>

#include <torchbridge/group_options.h>

#include "bridge/base/result.h"
#include "bridge/core/layout.h"

namespace torchbridge::train {

// The GPUs that the NVIDIA driver shows to this process.
struct CudaDevices {
  std::vector<CudaGpu> gpus;  // in the order of CUDA's indices
  std::string detail;         // for messages: CUDA_VISIBLE_DEVICES, and why there is no GPU
};

// Asks the driver (libcuda.so.1) without making a context; takes microseconds on a machine without
// a GPU.
CudaDevices cuda_devices();

// "2 GPUs are visible (NVIDIA H100, CUDA_VISIBLE_DEVICES='0,1')", "no GPU is visible (no NVIDIA
// driver: ...)".
std::string text_of(const CudaDevices& devices);

// The only visible GPU, whatever LOCAL_RANK is, because the scheduler has then given each task its
// own; else the GPU of index LOCAL_RANK. The error, where there is none of that index, names the
// visible GPUs.
Result<int> gpu_of(const Layout& layout, const CudaDevices& devices);

// The GPU of an index that the program gives.
Result<int> gpu_at(int index, const CudaDevices& devices);

}  // namespace torchbridge::train
