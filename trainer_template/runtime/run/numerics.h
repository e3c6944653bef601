// How libtorch computes on all devices of this process: settings that options choose.
#pragma once

#include "trainer_template/runtime/options/options.h"

namespace torchbridge::train {

// --deterministic, --fp32-precision and --cudnn-benchmark, as Python's torch.use_deterministic_algorithms,
// torch.set_float32_matmul_precision with torch.backends.cudnn.allow_tf32, and torch.backends.cudnn.benchmark.
// Before the group is formed: NCCL asks for the first one then.
void set_numerics(const Options& options);

}  // namespace torchbridge::train
