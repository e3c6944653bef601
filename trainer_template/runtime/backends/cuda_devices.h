// Which GPU a rank uses.
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <vector>

#include "bridge/core/layout.h"
#include "bridge/base/result.h"

namespace torchbridge::train {

// What a GPU can do, by NVIDIA's numbers: 9.0 of an H100.
struct Capability {
  int major = 0, minor = 0;
  auto operator<=>(const Capability&) const = default;
};

struct CudaGpu {
  std::string name;                      // "NVIDIA H100 80GB HBM3"
  std::optional<Capability> capability;  // nothing where the driver does not tell
};

// What the NVIDIA driver shows to this process.
struct CudaDevices {
  std::vector<CudaGpu> gpus;  // in the order of CUDA's indices
  std::string because;        // for a message: what CUDA_VISIBLE_DEVICES says, or why there is none
};

// Asks the driver (libcuda.so.1), without making a context; a machine without a GPU is asked in microseconds.
CudaDevices cuda_devices();

// "2 GPUs are visible (NVIDIA H100, CUDA_VISIBLE_DEVICES='0,1')", "no GPU is visible (no NVIDIA driver: ...)".
std::string text_of(const CudaDevices& devices);

// The only visible one, whatever LOCAL_RANK says: the scheduler has given each task its own; else the one of index
// LOCAL_RANK. An error, which shows what is visible, where there is none of that index.
Result<int> gpu_of(const Layout& layout, const CudaDevices& devices);

// A GPU that the program names by its index.
Result<int> gpu_at(int index, const CudaDevices& devices);

}  // namespace torchbridge::train
