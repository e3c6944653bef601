#include "trainer_template/runtime/training/early_stop.h"

#include <limits>

#include <gtest/gtest.h>

#include "tests/support/saved_of.h"

namespace torchbridge::train {
namespace {

TEST(EarlyStop, IsDueAfterSoManyEvaluationsWithoutALowerLoss) {
  EarlyStop stop(2);
  stop.evaluated(10, 1.0);
  stop.evaluated(20, 1.0);  // not lower
  EXPECT_FALSE(stop.is_due());
  stop.evaluated(30, 0.5);
  stop.evaluated(40, 0.6);
  EXPECT_FALSE(stop.is_due());
  stop.evaluated(50, 0.7);
  EXPECT_TRUE(stop.is_due());
  EXPECT_EQ(stop.best_loss(), 0.5);
  EXPECT_EQ(stop.best_step(), 30);
}

TEST(EarlyStop, IsNeverDueWithoutPatience) {
  EarlyStop stop(0);
  for (int step = 1; step < 100; ++step) stop.evaluated(step, 1.0);
  EXPECT_FALSE(stop.is_due());
}

TEST(EarlyStop, ResumesFromACheckpoint) {
  EarlyStop before(2);
  before.evaluated(10, 0.5);
  before.evaluated(20, 0.6);
  EarlyStop after(2);
  after.load(saved_of(before));
  EXPECT_EQ(after.best_loss(), 0.5);
  EXPECT_EQ(after.best_step(), 10);
  after.evaluated(30, 0.7);
  EXPECT_TRUE(after.is_due());
}

// A run without early stopping in between: what it did says nothing about the patience.
TEST(EarlyStop, DoesNotCountTheEvaluationsOfARunWithoutIt) {
  EarlyStop first(3), between(0), last(3);
  first.evaluated(10, 0.5);
  first.evaluated(20, 0.6);
  between.load(saved_of(first));
  for (int step = 30; step < 100; step += 10) between.evaluated(step, 0.9);
  last.load(saved_of(between));
  EXPECT_EQ(last.best_loss(), 0.5);
  last.evaluated(100, 0.9);
  EXPECT_FALSE(last.is_due());
  last.evaluated(110, 0.9);
  EXPECT_TRUE(last.is_due());
}

TEST(EarlyStop, NanIsNotALowerLoss) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EarlyStop stop(3);
  stop.evaluated(10, kNan);
  stop.evaluated(20, kNan);
  EXPECT_FALSE(stop.is_due());
  EXPECT_FALSE(stop.best_loss());  // JSON has no such number
  stop.evaluated(30, kNan);
  EXPECT_TRUE(stop.is_due());
  EXPECT_FALSE(stop.best_loss());
}

TEST(EarlyStop, ANumberAfterNanIsTheLowest) {
  EarlyStop stop(2);
  stop.evaluated(10, std::numeric_limits<double>::quiet_NaN());
  stop.evaluated(20, 5.0);
  stop.evaluated(30, std::numeric_limits<double>::quiet_NaN());
  EXPECT_FALSE(stop.is_due());
  EXPECT_EQ(stop.best_step(), 20);
}

}  // namespace
}  // namespace torchbridge::train
