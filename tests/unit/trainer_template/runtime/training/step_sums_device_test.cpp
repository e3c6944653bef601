// Reading the numbers of steps from a device, on one that behaves as a GPU does where order matters.
#include <algorithm>

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "tests/support/fake_device.h"
#include "trainer_template/runtime/training/step_sums.h"

namespace torchbridge::train {
namespace {

// Seven numbers, as reduce_step() gives them without a norm.
StepSums sums_of(double loss) {
  StepSums sums{.found_inf = {},
                .numbers = at::empty({7}, at::TensorOptions(at::kDouble).device(fake_device::kDevice))};
  auto* numbers = static_cast<double*>(sums.numbers.data_ptr());
  std::fill_n(numbers, 7, 0.0);
  numbers[5] = numbers[6] = loss;
  return sums;
}

TEST(DeviceSteps, AreReadAStepLater) {
  fake_device::forget();
  const int waited = fake_device::waits().of_the_thread;
  StepReader reader(fake_device::kDevice);
  reader.add({.step = 1}, {}, sums_of(0.5));
  EXPECT_EQ(fake_device::waiting(), 1u) << "the copy was waited for";
  EXPECT_TRUE(reader.read().empty());
  EXPECT_EQ(fake_device::waits().of_the_thread, waited);
  reader.add({.step = 2}, {}, sums_of(0.25));
  const auto first = reader.read();
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].record.step, 1);
  EXPECT_EQ(first[0].record.loss, 0.5);
  EXPECT_EQ(fake_device::waiting(), 1u) << "the step after it was waited for too";
  for (const auto& copy : fake_device::copies()) EXPECT_TRUE(copy.pinned);
  const auto last = reader.read(/*all=*/true);
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(last[0].record.loss, 0.25);
  EXPECT_EQ(fake_device::waiting(), 0u);
}

}  // namespace
}  // namespace torchbridge::train
