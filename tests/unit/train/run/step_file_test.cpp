#include <torchbridge/train/run/step_file.h>

#include <sstream>

#include "temporary_folder.h"

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

TEST(StepFile, IsForOneRunAtATime) {
  TemporaryFolder folder;
  const auto path = folder / "curve";
  std::filesystem::create_symlink("curve", folder / "link");
  const std::string one = "{\"step\":1,\"epoch\":0}";
  {
    StepFile first(path, 0, "--metrics");
    first.write(one);
    EXPECT_EQ(error_of([&] { StepFile(folder / "link", 0, "--ledger"); }),
              "cannot write '" + path.string() + "': another run, or another option of this one, writes it; give another --ledger");
    EXPECT_EQ(folder.read("curve"), one + "\n");
  }
  const StepFile next(path, 1, "--metrics");
  EXPECT_EQ(folder.read("curve"), one + "\n");
}

}  // namespace
}  // namespace torchbridge::train
