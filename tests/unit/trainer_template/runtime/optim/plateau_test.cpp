#include "trainer_template/runtime/optim/plateau.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace torchbridge::train {
namespace {

LrSchedule schedule(const std::string& text) { return *parse_lr_schedule(text); }

using Rates = std::vector<double>;

SavedNumbers saved_of(const Plateau& plateau) {
  PartNumbers all;
  save_numbers("plateau", plateau.numbers(), all);
  return {"plateau", all};
}

TEST(Plateau, LowersEachGroupAfterPatience) {
  Plateau plateau(schedule("plateau:factor=0.5,patience=1,min_lr=0.02"), {0.1, 0.03});
  plateau.observe(1.0);
  plateau.observe(1.0);
  EXPECT_EQ(plateau.learning_rates(), (Rates{0.1, 0.03}));
  plateau.observe(1.0);
  EXPECT_EQ(plateau.learning_rates(), (Rates{0.05, 0.02}));
}

TEST(Plateau, CountsNanAsNoImprovement) {
  Plateau plateau(schedule("plateau:patience=0"), {1.0});
  plateau.observe(NAN);
  EXPECT_EQ(plateau.learning_rates(), Rates{0.1});
}

TEST(Plateau, ResumesFromItsState) {
  const LrSchedule shared = schedule("plateau:patience=1,cooldown=1,factor=0.3");
  const double measured[] = {3, 3, 3, 3, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1};
  for (std::size_t stop = 0; stop < std::size(measured); ++stop) {
    Plateau straight(shared, {0.1});
    std::optional<Plateau> plateau(std::in_place, shared, Rates{0.1});
    for (std::size_t i = 0; i < std::size(measured); ++i) {
      if (i == stop) {
        const SavedNumbers saved = saved_of(*plateau);
        plateau.emplace(shared, Rates{0.1});
        plateau->load(saved);
      }
      straight.observe(measured[i]);
      plateau->observe(measured[i]);
    }
    EXPECT_EQ(plateau->learning_rates(), straight.learning_rates()) << "stopped at " << stop;
    EXPECT_LT(straight.learning_rates()[0], 0.01);
  }
}

// The remedy for a loss that is not finite: the same command with a lower --lr.
TEST(Plateau, ReducesAnotherLearningRateAsOften) {
  Plateau before(schedule("plateau:patience=0,factor=0.5"), {0.5, 0.25});
  for (int i = 0; i < 3; ++i) before.observe(1);  // two reductions
  EXPECT_EQ(before.learning_rates(), (Rates{0.125, 0.0625}));
  Plateau lower(schedule("plateau:patience=0,factor=0.5"), {0.25, 0});
  lower.load(saved_of(before));
  EXPECT_EQ(lower.learning_rates(), (Rates{0.0625, 0}));
  Plateau bounded(schedule("plateau:patience=0,factor=0.5,min_lr=0.2"), {0.25, 0.1});
  bounded.load(saved_of(before));
  EXPECT_EQ(bounded.learning_rates(), (Rates{0.2, 0.1}));
  Plateau again(schedule("plateau:patience=0,factor=0.5"), {0.25, 0.125});
  again.load(saved_of(lower));  // of rates of 0 there is no reduction
  EXPECT_EQ(again.learning_rates(), (Rates{0.0625, 0.125}));
}

TEST(Plateau, RejectsTheStateOfOtherGroups) {
  const SavedNumbers two = saved_of(Plateau(schedule("plateau"), {0.1, 0.2}));
  for (const Rates& rates : {Rates{0.1}, Rates{0.1, 0.2, 0.3}}) {
    const std::string error = error_of([&] { Plateau(schedule("plateau"), rates).load(two); });
    EXPECT_TRUE(contains(
        error, "has 2 parameter groups, the optimizer has " + std::to_string(rates.size())));
  }
}

}  // namespace
}  // namespace torchbridge::train
