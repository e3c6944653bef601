#include "trainer_template/runtime/options/gpu_precision.h"

#include <algorithm>
#include <iterator>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"

namespace torchbridge::train {
namespace {

// NVIDIA's CUDA C++ Programming Guide, "Compute Capabilities": arithmetic on __nv_bfloat16 and on
// half. torch.cuda.is_bf16_supported( including_emulation=False) draws the same line for bf16;
// below it libtorch emulates.
struct Need {
  Precision precision;
  const char* name;
  Capability least;
  const char* instead;
};
constexpr Need kNeeds[] = {{Precision::kBf16, "bf16", {8, 0}, "fp16 or fp32"},
                           {Precision::kFp16, "fp16", {5, 3}, "fp32"}};

std::string text_of(const Capability& capability) {
  return std::to_string(capability.major) + "." + std::to_string(capability.minor);
}

}  // namespace

Status check_precision(Precision precision, const CudaGpu& gpu) {
  const auto need = std::ranges::find(kNeeds, precision, &Need::precision);
  if (need == std::end(kNeeds) || !gpu.capability || *gpu.capability >= need->least) return Ok{};
  const std::string name = need->name;
  return Error{formatted(
      "--precision {}: {} has compute capability {}, {} needs {}; give --precision {}", name,
      printable(gpu.name), text_of(*gpu.capability), name, text_of(need->least), need->instead)};
}

}  // namespace torchbridge::train
