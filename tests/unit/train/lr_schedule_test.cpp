#include <gtest/gtest.h>
#include <torchbridge/train/lr_schedule.h>

namespace torchbridge::train {
namespace {

TEST(LrSchedule, StaysWhereItIs) {
  for (std::int64_t step : {1, 10, 1000}) EXPECT_EQ(learning_rate({.base = 0.1}, step), 0.1);
}

TEST(LrSchedule, RisesInEqualPartsAndFallsToZero) {
  const LrSchedule schedule{.base = 1.0, .cosine = true, .warmup_steps = 4, .total_steps = 14};
  EXPECT_EQ(learning_rate(schedule, 1), 0.25);
  EXPECT_EQ(learning_rate(schedule, 4), 1.0);
  EXPECT_EQ(learning_rate(schedule, 5), 1.0);
  EXPECT_NEAR(learning_rate(schedule, 10), 0.5, 1e-12);
  EXPECT_NEAR(learning_rate(schedule, 15), 0.0, 1e-12);
  for (std::int64_t step = 6; step <= 14; ++step) {
    EXPECT_LT(learning_rate(schedule, step), learning_rate(schedule, step - 1)) << step;
  }
}

}  // namespace
}  // namespace torchbridge::train
