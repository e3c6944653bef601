#include "trainer_template/runtime/training/peak_tflops.h"

#include <gtest/gtest.h>

namespace torchbridge::train {
namespace {

// Names as the driver gives them (cuDeviceGetName).
TEST(PeakTflops, IsThatOfTheGpuAndThePrecision) {
  const struct {
    const char* gpu;
    Precision precision;
    bool is_tf32;
    double expected;
  } kCases[] = {
      {"NVIDIA H100 80GB HBM3", Precision::kBf16, false, 989.5},
      {"NVIDIA H100 80GB HBM3", Precision::kFp32, true, 494.5},
      {"NVIDIA H100 80GB HBM3", Precision::kFp32, false, 67},
      {"NVIDIA H100 80GB HBM3", Precision::kFp32, false, 67},
      {"NVIDIA H100 PCIe", Precision::kBf16, false, 756.5},
      {"NVIDIA H100 NVL", Precision::kFp16, false, 835.5},
      {"NVIDIA H200", Precision::kBf16, false, 989.5},
      {"NVIDIA GH200 480GB", Precision::kBf16, false, 989.5},
      {"NVIDIA GB200", Precision::kBf16, false, 2500},
      {"NVIDIA B200", Precision::kBf16, false, 2250},
      {"NVIDIA A100-SXM4-80GB", Precision::kBf16, false, 312},
      {"NVIDIA A100-PCIE-40GB", Precision::kFp32, true, 156},
      {"NVIDIA A10", Precision::kBf16, false, 125},
      {"NVIDIA A40", Precision::kBf16, false, 149.7},
      {"NVIDIA L4", Precision::kBf16, false, 121},
      {"NVIDIA L40", Precision::kBf16, false, 181.05},
      {"NVIDIA L40S", Precision::kBf16, false, 362.05},
      {"Tesla V100-SXM2-16GB", Precision::kFp16, false, 125},
      {"Tesla V100-SXM2-16GB", Precision::kFp32, true, 15.7},
      {"Tesla T4", Precision::kFp16, false, 65},
  };
  for (const auto& c : kCases) {
    EXPECT_EQ(peak_tflops(c.gpu, c.precision, c.is_tf32), c.expected)
        << c.gpu << " " << static_cast<int>(c.precision);
  }
}

TEST(PeakTflops, IsUnknownForOtherGpusMigPartsAndEmulatedTypes) {
  const std::pair<const char*, Precision> kCases[] = {
      {"NVIDIA A10G", Precision::kBf16},
      {"NVIDIA GeForce RTX 4090", Precision::kBf16},
      {"", Precision::kFp32},
      {"Tesla T4", Precision::kBf16},
      {"NVIDIA A100-SXM4-40GB MIG 3g.20gb", Precision::kBf16},
      {"NVIDIA A1000", Precision::kFp32}};
  for (const auto& [gpu, precision] : kCases) {
    EXPECT_FALSE(peak_tflops(gpu, precision, false)) << gpu << " " << static_cast<int>(precision);
  }
}

}  // namespace
}  // namespace torchbridge::train
