// Sets how libtorch computes on all devices of this process, from options.
#pragma once

#include <torchbridge/options.h>

namespace torchbridge::train {

// --deterministic, --fp32-precision and --cudnn-benchmark, as Python's
// torch.use_deterministic_algorithms, torch.set_float32_matmul_precision with
// torch.backends.cudnn.allow_tf32, and torch.backends.cudnn.benchmark. Call it before the group is
// formed: NCCL reads the first setting then.
void set_numerics(const Options& options);

}  // namespace torchbridge::train
