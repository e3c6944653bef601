#include <gtest/gtest.h>
#include <torchbridge/part.h>

#include "tests/support/temporary_folder.h"
#include "trainer_template/runtime/base/own_name.h"

namespace torchbridge::train {
namespace {

TEST(Part, FindsItsOwnNumbersAmongThoseOfARun) {
  const SavedNumbers saved("mean", {{"mean", 1}, {"mean.steps", 2}, {"meaning.steps", 3}});
  EXPECT_EQ(saved.count_at(""), 1);
  EXPECT_EQ(saved.count_at("steps"), 2);
  EXPECT_FALSE(saved.find("ing.steps"));
  EXPECT_TRUE(SavedNumbers("me", {{"mean", 1}}).empty());
}

TEST(Part, NamesANumberThatIsMissingOrNoCount) {
  const SavedNumbers saved("plateau", {{"plateau.bad", 1e300}, {"plateau.cooldown", 0.5}});
  EXPECT_EQ(error_of([&] { saved.at("best"); }), "the checkpoint has no state 'plateau.best'");
  EXPECT_EQ(error_of([&] { saved.count_at("bad"); }),
            "the checkpoint has the state 'plateau.bad' of 1e+300, expected a count");
  EXPECT_EQ(error_of([&] { saved.count_at("cooldown"); }),
            "the checkpoint has the state 'plateau.cooldown' of 0.5, expected a count");
}

TEST(Part, ReplacesItsNumbersAndLeavesThoseOfOthers) {
  PartNumbers all = {{"skips", 3}, {"best.loss", 0.5}, {"best.step", 7}, {"best.without", 2}};
  save_numbers("best", {{"without", 4}}, all);
  save_numbers("skips", {}, all);
  save_numbers("run", {{"", 1}}, all);
  EXPECT_EQ(all, (PartNumbers{{"best.without", 4}, {"run", 1}}));
}

TEST(Part, HasNoNameUnderWhichTheRunKeepsItsOwnNumbers) {
  EXPECT_TRUE(is_part_name("average_2"));
  for (const char* name : {"train_set", "step_scale", "evaluation", "", "Mean", "mean.steps"})
    EXPECT_FALSE(is_part_name(name)) << name;
}

}  // namespace
}  // namespace torchbridge::train
