#include "trainer_template/runtime/training/early_stop.h"

#include <limits>

#include <gtest/gtest.h>

namespace torchbridge::train {
namespace {

TEST(EarlyStop, IsDueAfterSoManyEvaluationsWithoutALowerLoss) {
  EarlyStopState state;
  EarlyStop stop(2, state);
  stop.observe(1.0, 10);
  stop.observe(1.0, 20);  // not lower
  EXPECT_FALSE(stop.is_due());
  stop.observe(0.5, 30);
  stop.observe(0.6, 40);
  EXPECT_FALSE(stop.is_due());
  stop.observe(0.7, 50);
  EXPECT_TRUE(stop.is_due());
  EXPECT_EQ(state.best_loss, 0.5);
  EXPECT_EQ(state.best_step, 30);
}

TEST(EarlyStop, IsNeverDueWithoutPatience) {
  EarlyStopState state;
  EarlyStop stop(0, state);
  for (int step = 1; step < 100; ++step) stop.observe(1.0, step);
  EXPECT_FALSE(stop.is_due());
}

TEST(EarlyStop, ResumesFromACheckpoint) {
  EarlyStopState state;
  EarlyStop before(2, state);
  before.observe(0.5, 10);
  before.observe(0.6, 20);
  EarlyStopState saved = state;
  EarlyStop after(2, saved);
  EXPECT_EQ(saved.best_step, 10);
  after.observe(0.7, 30);
  EXPECT_TRUE(after.is_due());
}

TEST(EarlyStop, NanIsNotALowerLoss) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EarlyStopState state;
  EarlyStop stop(3, state);
  stop.observe(kNan, 10);
  stop.observe(kNan, 20);
  EXPECT_FALSE(stop.is_due());
  EXPECT_FALSE(state.best_loss);  // JSON has no such number
  stop.observe(kNan, 30);
  EXPECT_TRUE(stop.is_due());
  EXPECT_FALSE(state.best_loss);
}

TEST(EarlyStop, ANumberAfterNanIsTheLowest) {
  EarlyStopState state;
  EarlyStop stop(2, state);
  stop.observe(std::numeric_limits<double>::quiet_NaN(), 10);
  stop.observe(5.0, 20);
  stop.observe(std::numeric_limits<double>::quiet_NaN(), 30);
  EXPECT_FALSE(stop.is_due());
  EXPECT_EQ(state.best_step, 20);
}

}  // namespace
}  // namespace torchbridge::train
