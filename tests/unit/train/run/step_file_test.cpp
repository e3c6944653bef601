#include <torchbridge/train/run/step_file.h>

#include <gtest/gtest.h>

#include <sstream>

namespace torchbridge::train {
namespace {

TEST(StepFile, KeepsEachStepOnce) {
  const std::string one = "{\"step\":1,\"epoch\":0}", two = "{\"step\":2,\"epoch\":0}", end = "\n";
  const struct {
    std::string text;
    std::int64_t last_step;
    std::string kept, last_line;
  } kCases[] = {
      {one + end + two + end, 0, "", ""},
      {one + end + two + end, 1, one + end, one},
      {one + end + two + end, 2, one + end + two + end, two},
      {one + end + two + end, 5, one + end + two + end, ""},
      {one + end + "{\"step\":2,\"epo", 5, one + end, ""},  // cut off by a kill
      {one + end + two, 5, one + end, ""},
      {one + end + "{\"step\":2,\"epo\n" + two + end, 2, one + end + two + end, two},
      {"not ours\n" + one + end, 5, one + end, ""},
      {"", 5, "", ""},
  };
  for (const auto& c : kCases) {
    std::istringstream from(c.text);
    std::ostringstream to;
    EXPECT_EQ(copy_lines_until(from, c.last_step, to), c.last_line) << c.text;
    EXPECT_EQ(to.str(), c.kept) << c.text;
  }
}

}  // namespace
}  // namespace torchbridge::train
