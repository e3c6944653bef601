#include <torchbridge/program/program.h>

#include <CLI/CLI.hpp>
#include <gtest/gtest.h>

namespace torchbridge {
namespace {

TEST(Program, OfAnOptionThatIsGivenTwiceTheLastValueCounts) {
  CLI::App app;
  set_up(app);
  int first = 0, second = 0, third = 0;
  app.add_option("--first", first);
  app.add_option_group("group")->add_option("--second", second);
  app.add_subcommand("command")->add_option("--third", third);
  app.parse("--first 1 --second 2 --first=3 --second 4 command --third 5 --third 6");
  EXPECT_EQ(first, 3);
  EXPECT_EQ(second, 4);
  EXPECT_EQ(third, 6);
}

}  // namespace
}  // namespace torchbridge
