#include <gtest/gtest.h>
#include <torchbridge/train/run/early_stop.h>

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

}  // namespace
}  // namespace torchbridge::train
