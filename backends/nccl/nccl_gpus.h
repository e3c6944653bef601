// Which GPUs NCCL takes for the same, as it rejects two ranks of one host on one.
#pragma once

#include <string>
#include <string_view>

#include "trainer_template/runtime/backends/cuda_devices.h"

namespace torchbridge::nccl {

// What it compares (initTransportsRank in NCCL's init.cc): before 2.30 the bus id, which slices of
// one GPU (MIG) share; since then the UUID, by the driver's first function, which gives that of
// the whole GPU for a slice. Empty where the driver does not give it, and where the site allows
// several ranks a GPU: `several_ranks` is the value of NCCL_MULTI_RANK_GPU_ENABLE, which is 2.30's
// too.
inline std::string compared_gpu(int version, const train::CudaGpu& gpu,
                                std::string_view several_ranks) {
  constexpr int kByUuid = 23000;
  if (version < kByUuid) return gpu.bus_id;
  return several_ranks.empty() || several_ranks == "0" ? gpu.uuid : "";
}

}  // namespace torchbridge::nccl
