#include "trainer_template/runtime/options/gpu_precision.h"

#include <gtest/gtest.h>

namespace torchbridge::train {
namespace {

TEST(GpuPrecision, IsRejectedBelowTheRequiredCapability) {
  const struct {
    Precision precision;
    Capability capability;
    bool fits;
  } kCases[] = {
      {Precision::kBf16, {8, 0}, true},  {Precision::kBf16, {9, 0}, true},
      {Precision::kBf16, {7, 5}, false}, {Precision::kBf16, {7, 9}, false},
      {Precision::kFp16, {5, 3}, true},  {Precision::kFp16, {6, 0}, true},
      {Precision::kFp16, {5, 2}, false}, {Precision::kFp16, {3, 7}, false},
      {Precision::kFp32, {3, 5}, true},
  };
  for (const auto& c : kCases) {
    const Status status = check_precision(c.precision, {"Tesla", c.capability});
    EXPECT_EQ(static_cast<bool>(status), c.fits) << static_cast<int>(c.precision) << " with "
                                                 << c.capability.major << "." << c.capability.minor;
  }
}

TEST(GpuPrecision, TheErrorNamesTheCapabilityAndTheRequiredOne) {
  EXPECT_EQ(check_precision(Precision::kBf16, {"Tesla V100", Capability{7, 0}}).error().message,
            "--precision bf16: Tesla V100 has compute capability 7.0, bf16 needs 8.0; give "
            "--precision fp16 or fp32");
}

TEST(GpuPrecision, AnUnknownCapabilityIsAccepted) {
  EXPECT_TRUE(check_precision(Precision::kBf16, {"Tesla V100", std::nullopt}));
}

}  // namespace
}  // namespace torchbridge::train
