// Checks that a GPU supports a precision in hardware.
#pragma once

#include <torchbridge/settings.h>

#include "bridge/base/result.h"
#include "trainer_template/runtime/backends/cuda_devices.h"

namespace torchbridge::train {

// bf16 needs compute capability 8.0, fp16 5.3. The error names the precision, the GPU and its
// capability. A GPU of unknown capability is accepted.
Status check_precision(Precision precision, const CudaGpu& gpu);

}  // namespace torchbridge::train
