#include <gtest/gtest.h>
#include <torchbridge/train/optim/plateau.h>

#include <cmath>

#include "temporary_folder.h"

namespace torchbridge::train {
namespace {

LrSchedule schedule(const std::string& text) { return *parse_lr_schedule(text); }

using Rates = std::vector<double>;

TEST(Plateau, LowersEachGroupWhenPatienceIsOver) {
  Plateau plateau(schedule("plateau:factor=0.5,patience=1,min_lr=0.02"), {0.1, 0.03});
  plateau.observe(1.0);
  plateau.observe(1.0);
  EXPECT_EQ(plateau.learning_rates(), (Rates{0.1, 0.03}));
  plateau.observe(1.0);
  EXPECT_EQ(plateau.learning_rates(), (Rates{0.05, 0.02}));
}

TEST(Plateau, TakesNanForNoBetter) {
  Plateau plateau(schedule("plateau:patience=0"), {1.0});
  plateau.observe(NAN);
  EXPECT_EQ(plateau.learning_rates(), Rates{0.1});
}

TEST(Plateau, GoesOnFromItsState) {
  const LrSchedule shared = schedule("plateau:patience=1,cooldown=1,factor=0.3");
  const double measured[] = {3, 3, 3, 3, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1};
  for (std::size_t stop = 0; stop < std::size(measured); ++stop) {
    Plateau straight(shared, {0.1}), before(shared, {0.1}), after(shared, {7.0});
    for (std::size_t i = 0; i < std::size(measured); ++i) {
      if (i == stop) after.load_state(before.state());
      straight.observe(measured[i]);
      (i < stop ? before : after).observe(measured[i]);
    }
    EXPECT_EQ(after.learning_rates(), straight.learning_rates()) << "stopped at " << stop;
    EXPECT_LT(straight.learning_rates()[0], 0.01);
  }
}

TEST(Plateau, RefusesTheStateOfOtherGroups) {
  const Plateau two(schedule("plateau"), {0.1, 0.2});
  Plateau one(schedule("plateau"), {0.1}), three(schedule("plateau"), {0.1, 0.2, 0.3});
  EXPECT_TRUE(contains(error_of([&] { one.load_state(two.state()); }), "for more than 1 parameter groups"));
  EXPECT_TRUE(contains(error_of([&] { three.load_state(two.state()); }), "has no 'lr.2'"));
}

}  // namespace
}  // namespace torchbridge::train
