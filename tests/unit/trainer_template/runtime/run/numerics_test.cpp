#include "trainer_template/runtime/run/numerics.h"

#include <string>

#include <ATen/Context.h>
#include <gtest/gtest.h>

namespace torchbridge::train {
namespace {

using at::Float32Backend;
using at::Float32Op;

bool is_tf32_on_gpu(Float32Op operation) {
  return at::globalContext().float32Precision(Float32Backend::CUDA, operation) ==
         at::Float32Precision::TF32;
}

void set(Fp32Precision fp32_precision) {
  Options options;
  options.fp32_precision = fp32_precision;
  set_numerics(options);
}

TEST(Numerics, Fp32PrecisionIsThatOfMatricesAndOfConvolutions) {
  // Python's: products of matrices in fp32, convolutions in TF32.
  set(Fp32Precision::kAuto);
  EXPECT_FALSE(is_tf32_on_gpu(Float32Op::MATMUL));
  EXPECT_TRUE(is_tf32_on_gpu(Float32Op::CONV));
  for (const bool tf32 : {true, false}) {
    set(tf32 ? Fp32Precision::kTf32 : Fp32Precision::kIeee);
    for (Float32Op each : {Float32Op::MATMUL, Float32Op::CONV, Float32Op::RNN})
      EXPECT_EQ(is_tf32_on_gpu(each), tf32);
    // These throw if libtorch's older settings differ from the newer ones.
    EXPECT_EQ(at::globalContext().allowTF32CuBLAS(), tf32);
    EXPECT_EQ(at::globalContext().allowTF32CuDNN(), tf32);
  }
}

TEST(Numerics, FlagsAreLibtorchs) {
  Options options;
  options.cudnn_benchmark = true;
  set_numerics(options);
  EXPECT_TRUE(at::globalContext().benchmarkCuDNN());
  EXPECT_FALSE(at::globalContext().deterministicAlgorithms());
  options = {.deterministic = true};
  set_numerics(options);
  EXPECT_FALSE(at::globalContext().benchmarkCuDNN());
  EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
  set_numerics({});
  EXPECT_FALSE(at::globalContext().deterministicAlgorithms());
}

}  // namespace
}  // namespace torchbridge::train
