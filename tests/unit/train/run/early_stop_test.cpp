#include <gtest/gtest.h>
#include <torchbridge/train/run/early_stop.h>

#include <cmath>
#include <limits>

namespace torchbridge::train {
namespace {

TEST(EarlyStop, IsDueAfterSoManyEvaluationsWithoutALowerLoss) {
  EarlyStop stop(2, {});
  stop.observe(1.0, 10);
  stop.observe(1.0, 20);  // not lower
  EXPECT_FALSE(stop.is_due());
  stop.observe(0.5, 30);
  stop.observe(0.6, 40);
  EXPECT_FALSE(stop.is_due());
  stop.observe(0.7, 50);
  EXPECT_TRUE(stop.is_due());
  EXPECT_EQ(stop.best_loss(), 0.5);
  EXPECT_EQ(stop.best_step(), 30);
}

TEST(EarlyStop, IsNeverDueWithoutPatience) {
  EarlyStop stop(0, {});
  for (int step = 1; step < 100; ++step) stop.observe(1.0, step);
  EXPECT_FALSE(stop.is_due());
}

TEST(EarlyStop, GoesOnFromACheckpoint) {
  EarlyStop before(2, {});
  before.observe(0.5, 10);
  before.observe(0.6, 20);
  std::map<std::string, double> state = {{"plateau.best", 3}};
  before.put_state(state);
  EarlyStop after(2, state);
  EXPECT_EQ(after.best_step(), 10);
  after.observe(0.7, 30);
  EXPECT_TRUE(after.is_due());
}

TEST(EarlyStop, ALossThatIsNoNumberIsNoBetterAlsoOverARestart) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EarlyStop before(3, {});
  before.observe(kNan, 10);
  before.observe(kNan, 20);
  EXPECT_FALSE(before.is_due());
  EXPECT_FALSE(before.has_best());
  std::map<std::string, double> state;
  before.put_state(state);
  for (const auto& [name, value] : state) EXPECT_TRUE(std::isfinite(value)) << name;  // JSON has no other numbers
  EarlyStop after(3, state);
  EXPECT_FALSE(after.is_due());
  after.observe(kNan, 30);
  EXPECT_TRUE(after.is_due());
  EXPECT_FALSE(after.has_best());
}

TEST(EarlyStop, ANumberAfterNoneIsTheBest) {
  EarlyStop stop(2, {});
  stop.observe(std::numeric_limits<double>::quiet_NaN(), 10);
  stop.observe(5.0, 20);
  stop.observe(std::numeric_limits<double>::quiet_NaN(), 30);
  EXPECT_FALSE(stop.is_due());
  EXPECT_EQ(stop.best_step(), 20);
}

}  // namespace
}  // namespace torchbridge::train
