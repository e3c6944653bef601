#include <gtest/gtest.h>
#include <torchbridge/lr_schedule.h>

#include "tests/support/temporary_folder.h"

namespace torchbridge::train {
namespace {

LrSchedule parsed(const std::string& text, std::int64_t total_steps = 0,
                  std::int64_t warmup_steps = 0) {
  LrSchedule schedule = *parse_lr_schedule(text);
  schedule.total_steps = total_steps;
  schedule.warmup_steps = warmup_steps;
  return schedule;
}

TEST(LrSchedule, IsConstantByDefault) {
  for (std::int64_t step : {1, 10, 1000}) {
    EXPECT_EQ(learning_rate({}, 0.1, step), 0.1);
    EXPECT_EQ(learning_rate(parsed("constant"), 0.1, step), 0.1);
    EXPECT_EQ(learning_rate(parsed("plateau"), 0.1, step), 0.1);
  }
}

TEST(LrSchedule, RisesInEqualPartsAndFallsToZero) {
  const LrSchedule schedule = parsed("cosine", 14, 4);
  EXPECT_EQ(learning_rate(schedule, 1.0, 1), 0.25);
  EXPECT_EQ(learning_rate(schedule, 1.0, 2), 0.5);
  EXPECT_EQ(learning_rate(schedule, 1.0, 4), 1.0);
  EXPECT_EQ(learning_rate(schedule, 1.0, 5), 1.0);
  EXPECT_NEAR(learning_rate(schedule, 1.0, 10), 0.5, 1e-12);
  EXPECT_NEAR(learning_rate(schedule, 1.0, 15), 0.0, 1e-12);
  for (std::int64_t step = 6; step <= 14; ++step) {
    EXPECT_LT(learning_rate(schedule, 1.0, step), learning_rate(schedule, 1.0, step - 1)) << step;
  }
}

// Printed by tests/reference/lr_schedule_reference.py with torch 2.11; all of its cases run in
// process.Equality.
TEST(LrSchedule, GivesPythonsValues) {
  const struct {
    const char* text;
    double base;
    std::int64_t total_steps, warmup_steps, step;
    double expected;
  } cases[] = {
      {"constant", 0.3, 12, 7, 4, 0.1714285714285714},
      {"step:step_size=3,gamma=0.7", 0.003, 50, 5, 20, 0.00072029999999999989},
      {"multi-step:milestones=10+20+20+35,gamma=0.3", 0.1, 50, 0, 36, 0.00080999999999999996},
      {"cosine:eta_min=1e-5", 0.0007, 301, 17, 100, 0.0005675368429415256},
      {"polynomial:power=2.5", 0.003, 123, 10, 60, 0.00072422761567531631},
      {"one-cycle", 0.1, 1000, 0, 500, 0.081174565394976306},
      {"one-cycle:linear=true,pct_start=0.45", 0.03, 77, 0, 60, 0.012042574781582053},
      {"one-cycle:three_phase=true,div_factor=10,final_div_factor=100", 0.5, 91, 0, 70,
       0.030001997347543},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(learning_rate(parsed(c.text, c.total_steps, c.warmup_steps), c.base, c.step),
              c.expected)
        << c.text << ", step " << c.step;
  }
}

TEST(LrSchedule, CyclesTheMomentumOfOneCycle) {
  const LrSchedule schedule = parsed("one-cycle:base_momentum=0.8,max_momentum=0.9", 100);
  EXPECT_EQ(cycled_momentum(schedule, 1), 0.9);
  EXPECT_EQ(cycled_momentum(schedule, 30), 0.8);
  EXPECT_EQ(cycled_momentum(schedule, 100), 0.9);
  EXPECT_FALSE(cycled_momentum(parsed("one-cycle:cycle_momentum=false", 100), 1));
  EXPECT_FALSE(cycled_momentum(parsed("cosine", 100), 1));
}

TEST(LrSchedule, HoldsTheEndOfOneCycle) {
  const LrSchedule schedule = parsed("one-cycle", 100);
  EXPECT_EQ(learning_rate(schedule, 0.1, 1000), learning_rate(schedule, 0.1, 101));
}

TEST(LrSchedule, RisesNoHigherWithinAStepOfTheWarmUp) {
  LrSchedule schedule = parsed("cosine", 100, 4);
  schedule.scale = {.first_step = 3, .first_count = 3, .each = 0.25};
  for (const std::int64_t step : {4, 5, 6, 7, 8})
    EXPECT_EQ(learning_rate(schedule, 0.1, step), 0.1) << step;
  EXPECT_LT(learning_rate(schedule, 0.1, 9), 0.1);
}

// From step 51 on a step is a quarter of the size: four of them are one, in warm-up, milestones and
// both of one-cycle's curves.
TEST(LrSchedule, FollowsTheSamplesWhereStepsAreSmaller) {
  for (const char* text :
       {"cosine:eta_min=1e-5", "step:step_size=20", "multi-step:milestones=40+65", "polynomial",
        "one-cycle", "one-cycle:three_phase=true"}) {
    for (const std::int64_t warmup : {0, 1, 70}) {
      const LrSchedule whole = parsed(text, 100, warmup);
      LrSchedule smaller = whole;
      smaller.scale = {.first_step = 50, .first_count = 50, .each = 0.25};
      for (std::int64_t i = 0; i < 50; ++i) {
        SCOPED_TRACE(std::string(text) + ", warm-up " + std::to_string(warmup) + ", step " +
                     std::to_string(51 + i));
        EXPECT_EQ(learning_rate(smaller, 0.1, 51 + 4 * i), learning_rate(whole, 0.1, 51 + i));
        EXPECT_EQ(cycled_momentum(smaller, 51 + 4 * i), cycled_momentum(whole, 51 + i));
      }
    }
  }
}

// The last whole step is at 99: the four smaller ones that it is now do not go beyond its end.
TEST(LrSchedule, OneCycleEndsWithItsLastWholeStep) {
  for (const char* text : {"one-cycle", "one-cycle:linear=true", "one-cycle:three_phase=true"}) {
    LrSchedule schedule = parsed(text, 100);
    const double end = learning_rate(schedule, 0.1, 100);
    const auto momentum = cycled_momentum(schedule, 100);
    schedule.scale = {.first_step = 50, .first_count = 50, .each = 0.25};
    for (std::int64_t step = 51 + 4 * 49; step < 51 + 4 * 50; ++step) {
      EXPECT_EQ(learning_rate(schedule, 0.1, step), end) << text << ", step " << step;
      EXPECT_EQ(cycled_momentum(schedule, step), momentum) << text << ", step " << step;
    }
  }
}

double halved(std::int64_t step, std::int64_t total) { return 2 * step < total ? 1.0 : 0.5; }
const CustomSchedule kOwn[] = {{"halves", halved}};

TEST(LrSchedule, AddedByTheProgramMultipliesTheRateAfterTheWarmUp) {
  LrSchedule schedule = *parse_lr_schedule("halves", kOwn);
  schedule.total_steps = 14;
  schedule.warmup_steps = 4;
  EXPECT_EQ(learning_rate(schedule, 0.8, 1), 0.2);
  for (std::int64_t step : {5, 9}) EXPECT_EQ(learning_rate(schedule, 0.8, step), 0.8) << step;
  for (std::int64_t step : {10, 14}) EXPECT_EQ(learning_rate(schedule, 0.8, step), 0.4) << step;
  EXPECT_FALSE(cycled_momentum(schedule, 5));
  EXPECT_FALSE(is_plateau(schedule));
}

TEST(LrSchedule, AddedByTheProgramIsNamedWithTheOthers) {
  const std::string message = parse_lr_schedule("halve", kOwn).error().message;
  EXPECT_TRUE(contains(message, "one-cycle, plateau, halves; did you mean 'halves'?")) << message;
  EXPECT_TRUE(contains(parse_lr_schedule("halves").error().message,
                       "'halves': expected one of constant, "));
}

TEST(LrSchedule, NamesWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"",
       "'': expected one of constant, step, multi-step, cosine, polynomial, one-cycle, plateau"},
      {"cosin", "'cosin': expected one of constant, "},
      {"constant:gamma=1", "'gamma' is not a key of constant, which has none"},
      {"step:size=3", "'size' is not a key of step; expected step_size, gamma"},
      {"step:", "'' is not a key of step"},
      {"step:gamma=0.1,", "'' is not a key of step"},
      {"step:step_size", "step_size=: expected a whole number of at least 1"},
      {"step:step_size=0", "step_size=0: expected a whole number of at least 1"},
      {"step:gamma=-1", "gamma=-1: expected a number of at least 0"},
      {"step:gamma=nan", "gamma=nan: expected a number"},
      {"step:gamma=0.1x", "gamma=0.1x: expected a number"},
      {"multi-step", "milestones is missing, as in multi-step:milestones=100+200"},
      {"multi-step:milestones=200+100", "milestones=200+100: expected ascending steps"},
      {"multi-step:milestones=", "milestones=: expected ascending steps"},
      {"one-cycle:pct_start=1.5", "pct_start=1.5: expected a number from 0 to 1"},
      {"one-cycle:linear=yes", "linear=yes: expected true or false"},
      {"plateau:factor=1", "factor=1: expected a number from 0 to 0.999"},
  };
  for (const auto& [text, expected] : cases) {
    const auto schedule = parse_lr_schedule(text);
    ASSERT_FALSE(schedule) << text;
    EXPECT_TRUE(contains(schedule.error().message, expected)) << schedule.error().message;
  }
}

}  // namespace
}  // namespace torchbridge::train
