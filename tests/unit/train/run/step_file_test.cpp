#include <torchbridge/train/run/step_file.h>

#include <sys/stat.h>

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
      {"{\"ste", 5, "", ""},
      {std::string(100, '\0'), 5, "", ""},
      {"", 5, "", ""},
  };
  for (const auto& c : kCases) {
    std::istringstream file(c.text);
    const auto kept = lines_until(file, c.last_step);
    ASSERT_TRUE(kept) << c.text;
    EXPECT_EQ(kept->last, c.last_line) << c.text;
    EXPECT_EQ(c.text.substr(0, kept->size), c.kept);
  }
}

TEST(StepFile, LeavesWhatIsNotItsOwnAsItIs) {
  TemporaryFolder folder;
  for (const std::string text : {"precious\n", "precious", "{\"step\"\n", "a,b\n{\"step\":1}\n"}) {
    folder.write("file", text);
    EXPECT_TRUE(contains(error_of([&] { StepFile(folder / "file", 5, "--metrics"); }), "its first line is no record of a step"));
    EXPECT_EQ(folder.read("file"), text);
  }
  // Another file beside it, whatever its name is, and the rights of its own.
  folder.write("curve", "{\"step\":1}\n{\"step\":2}\n");
  folder.write("curve.tmp", "precious");
  std::filesystem::permissions(folder / "curve", std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  StepFile(folder / "curve", 1, "--metrics").write("{\"step\":2,\"again\":1}");
  EXPECT_EQ(folder.read("curve"), "{\"step\":1}\n{\"step\":2,\"again\":1}\n");
  EXPECT_EQ(folder.read("curve.tmp"), "precious");
  EXPECT_EQ(std::filesystem::status(folder / "curve").permissions(), std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST(StepFile, SaysThatNobodyReadsAPipe) {
  TemporaryFolder folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_TRUE(contains(error_of([&] { StepFile(folder / "pipe", 0, "--metrics"); }), "nobody reads this pipe; give another --metrics"));
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
              "cannot write '" + (folder / "link").string() + "': another run, or another option of this one, writes it; give another --ledger");
    EXPECT_EQ(folder.read("curve"), one + "\n");
  }
  const StepFile next(path, 1, "--metrics");
  EXPECT_EQ(folder.read("curve"), one + "\n");
}

}  // namespace
}  // namespace torchbridge::train
