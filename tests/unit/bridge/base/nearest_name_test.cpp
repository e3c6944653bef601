#include "bridge/base/nearest_name.h"

#include <vector>

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

const std::vector<std::string> kNames = {"--epochs", "--eval-every", "--lr", "--lr-schedule",
                                         "--task"};

TEST(NearestName, IsTheOneOfTheFewestChanges) {
  const struct {
    const char *text, *nearest;
  } kCases[] = {
      {"--epoch", "--epochs"},
      {"--taks", "--task"},
      {"--evalevery", "--eval-every"},
      {"--lr-shedule", "--lr-schedule"},
      {"--Epochs", "--epochs"},
      {"--zebra", ""},
      {"", ""},
      {"--rl", "--lr"},
      {"--lr", "--lr"},
  };
  for (const auto& c : kCases) EXPECT_EQ(nearest_name(c.text, kNames), c.nearest) << c.text;
}

TEST(NearestName, LeavesLongTextAlone) {
  EXPECT_EQ(nearest_name(std::string(100'000, 'x'), kNames), "");
}

TEST(NearestName, SuggestsNothingWithoutANearestName) {
  EXPECT_EQ(did_you_mean("--epoch", kNames), "; did you mean '--epochs'?");
  EXPECT_EQ(did_you_mean("--zebra", kNames), "");
  EXPECT_EQ(did_you_mean("--zebra", {}), "");
}

}  // namespace
}  // namespace torchbridge
