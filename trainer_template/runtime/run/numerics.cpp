#include "trainer_template/runtime/run/numerics.h"

#include <ATen/Context.h>

namespace torchbridge::train {

void set_numerics(const Options& options) {
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(options.deterministic, /*warn_only=*/false);
  context.setBenchmarkCuDNN(options.cudnn_benchmark);
  if (options.fp32_precision == Fp32Precision::kAuto) return;
  // libtorch has an older and a newer setting for each of these, and throws if they differ: these
  // calls set both.
  const bool tf32 = options.fp32_precision == Fp32Precision::kTf32;
  context.setFloat32MatmulPrecision(tf32 ? "high" : "highest");
  context.setAllowTF32CuDNN(tf32);
}

}  // namespace torchbridge::train
