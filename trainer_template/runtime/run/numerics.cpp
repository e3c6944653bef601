#include "trainer_template/runtime/run/numerics.h"

#include <ATen/Context.h>

namespace torchbridge::train {

void set_numerics(const Options& options) {
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(options.deterministic, /*warn_only=*/false);
  context.setBenchmarkCuDNN(options.cudnn_benchmark);
  if (options.fp32_precision == "auto") return;
  // These two keep libtorch's older and newer settings of the same thing equal: where they differ it does not compute.
  const bool tf32 = options.fp32_precision == "tf32";
  context.setFloat32MatmulPrecision(tf32 ? "high" : "highest");
  context.setAllowTF32CuDNN(tf32);
}

}  // namespace torchbridge::train
