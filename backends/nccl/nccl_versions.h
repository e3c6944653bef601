// What depends on NCCL's version: whether the three that meet in a process fit each other, and
// which GPUs it takes for the same.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trainer_template/runtime/backends/cuda_devices.h"

namespace torchbridge::nccl {

// As NCCL_VERSION_CODE: 22809 for 2.28.9.
struct NcclVersions {
  int header = 0;    // with which this library was compiled
  int libtorch = 0;  // with which libtorch was compiled
  int library = 0;   // libnccl.so.2 of this process; 0: NCCL is a part of libtorch_cuda
};

// Of torch::cuda::nccl::version(), which has sixteen bits for each number.
inline int code_of(std::uint64_t version) {
  const auto number = [&](int shift) { return static_cast<int>(version >> shift & 0xffff); };
  return number(32) * 10000 + number(16) * 100 + number(0);
}

inline std::string nccl_version_text(int code) {
  return std::to_string(code / 10000) + "." + std::to_string(code / 100 % 100) + "." +
         std::to_string(code % 100);
}

// The error where they do not fit each other. Newer libraries of the same major version work: sites
// bring their own.
inline std::optional<std::string> version_error(const NcclVersions& found) {
  if (found.header != found.libtorch) {
    return "it was built with the headers of NCCL " + nccl_version_text(found.header) +
           ", but libtorch with those of " + nccl_version_text(found.libtorch) +
           ", where the options of NCCL have another layout: set TORCHBRIDGE_NCCL_INCLUDE to the "
           "headers of the same "
           "version and build anew";
  }
  if (found.library == 0) return std::nullopt;
  if (found.library >= found.header && found.library / 10000 == found.header / 10000)
    return std::nullopt;
  return "libnccl.so.2 is NCCL " + nccl_version_text(found.library) +
         ", but libtorch was built for " + nccl_version_text(found.header) +
         ": take its folder out of LD_LIBRARY_PATH, LD_PRELOAD or a loaded module, so that the one "
         "beside libtorch is "
         "found";
}

// What NCCL compares to reject two ranks of one host on one GPU (initTransportsRank in NCCL's
// init.cc): before 2.30 the bus id, which slices of one GPU (MIG) share; since then the UUID, by
// the driver's first function, which gives that of the whole GPU for a slice. Empty where the
// driver does not give it, and where the site allows several ranks a GPU: `several_ranks` is the
// value of NCCL_MULTI_RANK_GPU_ENABLE, which is 2.30's too.
inline std::string compared_gpu(int version, const train::CudaGpu& gpu,
                                std::string_view several_ranks) {
  constexpr int kByUuid = 23000;
  if (version < kByUuid) return gpu.bus_id;
  return several_ranks.empty() || several_ranks == "0" ? gpu.uuid : "";
}

}  // namespace torchbridge::nccl
