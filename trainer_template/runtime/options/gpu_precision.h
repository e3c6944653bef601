// Which GPUs compute in a precision of --precision by themselves.
#pragma once

#include <string>

#include "bridge/base/result.h"
#include "trainer_template/runtime/backends/cuda_devices.h"

namespace torchbridge::train {

// "bf16" needs compute capability 8.0, "fp16" 5.3; other precisions none. The error names precision, GPU and what it
// has. A GPU whose driver does not tell its capability is taken.
Status check_precision(const std::string& precision, const CudaGpu& gpu);

}  // namespace torchbridge::train
