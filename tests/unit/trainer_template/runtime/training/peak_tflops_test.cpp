#include "trainer_template/runtime/training/peak_tflops.h"

#include <gtest/gtest.h>

namespace torchbridge::train {
namespace {

// Names as the driver gives them (cuDeviceGetName).
TEST(PeakTflops, IsThatOfTheGpuAndThePrecision) {
  const struct {
    const char *gpu, *precision, *fp32_precision;
    double expected;
  } kCases[] = {
      {"NVIDIA H100 80GB HBM3", "bf16", "auto", 989.5},
      {"NVIDIA H100 80GB HBM3", "fp32", "tf32", 494.5},
      {"NVIDIA H100 80GB HBM3", "fp32", "auto", 67},
      {"NVIDIA H100 80GB HBM3", "fp32", "ieee", 67},
      {"NVIDIA H100 PCIe", "bf16", "auto", 756.5},
      {"NVIDIA H100 NVL", "fp16", "auto", 835.5},
      {"NVIDIA H200", "bf16", "auto", 989.5},
      {"NVIDIA GH200 480GB", "bf16", "auto", 989.5},
      {"NVIDIA GB200", "bf16", "auto", 2500},
      {"NVIDIA B200", "bf16", "auto", 2250},
      {"NVIDIA A100-SXM4-80GB", "bf16", "auto", 312},
      {"NVIDIA A100-PCIE-40GB", "fp32", "tf32", 156},
      {"NVIDIA A10", "bf16", "auto", 125},
      {"NVIDIA A40", "bf16", "auto", 149.7},
      {"NVIDIA L4", "bf16", "auto", 121},
      {"NVIDIA L40", "bf16", "auto", 181.05},
      {"NVIDIA L40S", "bf16", "auto", 362.05},
      {"Tesla V100-SXM2-16GB", "fp16", "auto", 125},
      {"Tesla V100-SXM2-16GB", "fp32", "tf32", 15.7},
      {"Tesla T4", "fp16", "auto", 65},
  };
  for (const auto& c : kCases) {
    EXPECT_EQ(peak_tflops(c.gpu, c.precision, c.fp32_precision), c.expected) << c.gpu << " " << c.precision;
  }
}

TEST(PeakTflops, IsUnknownForOtherGpusMigPartsAndEmulatedTypes) {
  const std::pair<const char*, const char*> kCases[] = {
      {"NVIDIA A10G", "bf16"}, {"NVIDIA GeForce RTX 4090", "bf16"},           {"", "fp32"},
      {"Tesla T4", "bf16"},    {"NVIDIA A100-SXM4-40GB MIG 3g.20gb", "bf16"}, {"NVIDIA A1000", "fp32"}};
  for (const auto& [gpu, precision] : kCases) {
    EXPECT_FALSE(peak_tflops(gpu, precision, "auto")) << gpu << " " << precision;
  }
}

}  // namespace
}  // namespace torchbridge::train
