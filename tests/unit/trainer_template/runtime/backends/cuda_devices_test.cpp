#include "trainer_template/runtime/backends/cuda_devices.h"

#include <gtest/gtest.h>

namespace torchbridge::train {
namespace {

CudaDevices devices(int count) {
  return {std::vector<CudaGpu>(count, CudaGpu{"NVIDIA H100", Capability{9, 0}, "", ""}),
          "CUDA_VISIBLE_DEVICES is not set"};
}
Layout layout(int local_rank) {
  return {
      .rank = 8 + local_rank, .world_size = 16, .local_rank = local_rank, .local_world_size = 8};
}

TEST(GpuSelection, LocalRankIsTheIndexUnlessOneGpuIsVisible) {
  const struct {
    int local_rank, visible, expected;
  } kCases[] = {{0, 8, 0}, {7, 8, 7}, {0, 1, 0}, {7, 1, 0}, {1, 2, 1}};
  for (const auto& c : kCases) {
    const auto found = gpu_of(layout(c.local_rank), devices(c.visible));
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ(*found, c.expected) << c.local_rank << " of " << c.visible;
  }
}

TEST(GpuSelection, AMissingGpuIsAnErrorThatNamesTheVisibleOnes) {
  const auto missing = gpu_of(layout(5), devices(4));
  ASSERT_FALSE(missing);
  EXPECT_EQ(
      missing.error().message,
      "LOCAL_RANK=5, but only 4 GPUs are visible (NVIDIA H100, CUDA_VISIBLE_DEVICES is not set): "
      "start no more ranks a node than there are GPUs");
  const auto none = gpu_of(layout(0), devices(0));
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message, "no GPU is visible (CUDA_VISIBLE_DEVICES is not set)");
}

TEST(GpuSelection, AnIndexOfTheProgramIsUsedAsItIs) {
  EXPECT_EQ(*gpu_at(1, devices(2)), 1);
  const auto missing = gpu_at(2, devices(2));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message,
            "device cuda:2: 2 GPUs are visible (NVIDIA H100, CUDA_VISIBLE_DEVICES is not set)");
}

TEST(GpuSelection, TheDriverIsAskedOnAnyMachine) {
  const CudaDevices here = cuda_devices();
  EXPECT_FALSE(here.detail.empty());
}

}  // namespace
}  // namespace torchbridge::train
