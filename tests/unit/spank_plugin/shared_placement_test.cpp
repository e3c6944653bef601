#include "spank_plugin/shared_placement.h"

#include <unistd.h>

#include <csignal>

#include <gtest/gtest.h>

#include "child_ending.h"

namespace torchbridge {
namespace {

const NodeOfRank kPlacement = {1, 0, 1};

Result<NodeOfRank> must_not_ask() { return Error{"asked again"}; }

TEST(SharedPlacement, IsAskedByOneOfSeveralProcesses) {
  const SharedPlacement placement(kPlacement.size());
  const auto ask = [] { return Result<NodeOfRank>(kPlacement); };
  ASSERT_EQ(ending_of_child([&] { (void)placement.ask_once(ask); }), exited(0));
  const auto found = placement.ask_once(must_not_ask);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(*found, kPlacement);
}

TEST(SharedPlacement, KeepsAnErrorAndAnEmptyAnswer) {
  const SharedPlacement failed(3), empty(3);
  EXPECT_FALSE(failed.ask_once([] { return Result<NodeOfRank>(Error{std::string(5000, 'x')}); }));
  EXPECT_EQ(failed.ask_once(must_not_ask).error().message, std::string(1023, 'x'));
  EXPECT_TRUE(empty.ask_once([] { return Result<NodeOfRank>(NodeOfRank()); }));
  const auto found = empty.ask_once(must_not_ask);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_TRUE(found->empty());
}

TEST(SharedPlacement, IsAskedAgainWhereTheFirstTaskDied) {
  const SharedPlacement placement(kPlacement.size());
  const auto die = []() -> Result<NodeOfRank> {
    kill(getpid(), SIGKILL);
    return Error{"alive"};
  };
  ASSERT_EQ(ending_of_child([&] { (void)placement.ask_once(die); }), killed(SIGKILL));
  const auto found = placement.ask_once([] { return Result<NodeOfRank>(kPlacement); });
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(*found, kPlacement);
}

TEST(SharedPlacement, IsAskedByEachTaskWhereThereIsNoMemory) {
  const SharedPlacement placement;
  int asked = 0;
  for (int task = 0; task < 2; ++task) (void)placement.ask_once([&] { return ++asked, Result<NodeOfRank>(kPlacement); });
  EXPECT_EQ(asked, 2);
}

}  // namespace
}  // namespace torchbridge
