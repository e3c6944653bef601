#include "trainer_template/runtime/output/step_file.h"

#include <sys/stat.h>

#include <sstream>

#include "tests/support/temporary_folder.h"

namespace torchbridge::train {
namespace {

TEST(StepFile, KeepsEachStepOnce) {
  const std::string one = "{\"step\":1,\"epoch\":0}", two = "{\"step\":2,\"epoch\":0}", end = "\n";
  const struct {
    std::string text;
    std::int64_t last_step;
    std::string kept, last_line;
    bool has_later = false;
  } kCases[] = {
      {one + end + two + end, 0, "", "", true},
      {one + end + two + end, 1, one + end, one, true},
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
    EXPECT_EQ(kept->has_later, c.has_later) << c.text;
    EXPECT_EQ(c.text.substr(0, kept->size), c.kept);
  }
}

TEST(StepFile, DoesNotChangeOtherFiles) {
  TemporaryFolder folder;
  for (const std::string text : {"precious\n", "precious", "{\"step\"\n", "a,b\n{\"step\":1}\n"}) {
    folder.write("file", text);
    EXPECT_TRUE(contains(error_of([&] { StepFile(folder / "file", {.step = 5}, "--metrics"); }),
                         "its first line does not begin with '{\"step\":'"));
    EXPECT_EQ(folder.read("file"), text);
  }
  // Neither another file in the folder nor the file's own permissions change.
  folder.write("curve", "{\"step\":1}\n{\"step\":2}\n");
  folder.write("curve.tmp", "precious");
  std::filesystem::permissions(
      folder / "curve", std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  StepFile(folder / "curve", {.step = 1}, "--metrics").write("{\"step\":2,\"again\":1}");
  EXPECT_EQ(folder.read("curve"), "{\"step\":1}\n{\"step\":2,\"again\":1}\n");
  EXPECT_EQ(folder.read("curve.tmp"), "precious");
  EXPECT_EQ(std::filesystem::status(folder / "curve").permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

std::string line(int step, const std::string& run = "") {
  return "{\"step\":" + std::to_string(step) + ",\"epoch\":0" +
         (run.empty() ? "" : ",\"run\":\"" + run + "\"") + "}";
}

TEST(StepFile, HasTheRunInItsFirstLineAndContinues) {
  TemporaryFolder folder;
  for (int start : {0, 2, 1}) {
    StepFile file(folder / "curve", {.run = "a", .step = start}, "--metrics");
    for (int step : {1, 2}) file.write(line(start + step));
  }
  EXPECT_EQ(folder.read("curve"), line(1, "a") + "\n" + line(2) + "\n" + line(3) + "\n");
  // The run began in another file, which is gone.
  StepFile(folder / "later", {.run = "a", .step = 3}, "--metrics").write(line(4));
  EXPECT_EQ(folder.read("later"), line(4, "a") + "\n");
  EXPECT_FALSE(std::filesystem::exists(folder / "curve.aside-1"));
}

// Or the next start would take it for the file of another run.
TEST(StepFile, HasTheRunAgainAfterATruncation) {
  TemporaryFolder folder;
  StepFile file(folder / "curve", {.run = "a"}, "--metrics");
  file.write("{\"step\":1}");
  std::filesystem::resize_file(folder / "curve", 0);
  for (const char* step : {"2", "3"}) file.write(std::string("{\"step\":") + step + "}");
  EXPECT_EQ(folder.read("curve"), "{\"step\":2,\"run\":\"a\"}\n{\"step\":3}\n");
}

TEST(StepFile, CopiesTheFileOfAnotherRun) {
  const std::string of_b = line(1, "b") + "\n" + line(2) + "\n",
                    without = line(1) + "\n" + line(2) + "\n";
  const struct {
    std::string text, run;
    std::int64_t step;
    bool goes_back;
    std::string kept;
    bool is_copied;
  } kCases[] = {
      {of_b, "b", 1, false, line(1, "b") + "\n", false},
      {of_b, "b", 1, true, line(1, "b") + "\n", true},
      {of_b, "b", 2, true, of_b, false},
      {of_b, "b", 0, false, "", false},
      {of_b, "a", 0, false, "", true},
      {of_b, "a", 2, false, "", true},
      {of_b, "", 2, false, "", true},
      {without, "", 1, false, line(1) + "\n",
       true},  // of a version without ids: its run is not known
      {without, "", 2, false, without, false},
      {without, "a", 2, false, "", true},
      {"{\"step\":1,\"epo", "a", 0, false, "", false},  // no whole line is lost
      {"", "a", 0, false, "", false},
  };
  for (const auto& c : kCases) {
    TemporaryFolder folder;
    folder.write("curve", c.text);
    testing::internal::CaptureStderr();
    StepFile(folder / "curve", {.run = c.run, .step = c.step, .goes_back = c.goes_back},
             "--metrics");
    const std::string errors = testing::internal::GetCapturedStderr();
    const std::string name = c.text + " at " + std::to_string(c.step) + " of " + c.run;
    EXPECT_EQ(folder.read("curve"), c.kept) << name;
    ASSERT_EQ(std::filesystem::exists(folder / "curve.aside-1"), c.is_copied) << name;
    EXPECT_EQ(errors.ends_with(": copied to '" + (folder / "curve.aside-1").string() + "'\n"),
              c.is_copied)
        << errors;
    if (c.is_copied) {
      EXPECT_EQ(folder.read("curve.aside-1"), c.text) << name;
    }
  }
}

TEST(StepFile, CopiesEachRunToItsOwnName) {
  TemporaryFolder folder;
  for (const char* run : {"a", "b", "c"})
    StepFile(folder / "curve", {.run = run}, "--metrics").write(line(1));
  EXPECT_EQ(folder.read("curve"), line(1, "c") + "\n");
  EXPECT_EQ(folder.read("curve.aside-1"), line(1, "a") + "\n");
  EXPECT_EQ(folder.read("curve.aside-2"), line(1, "b") + "\n");
}

TEST(StepFile, IsUnchangedWhenItCannotBeCopied) {
  // The name of the copy is too long for a file.
  TemporaryFolder folder;
  const std::string name(250, 'c'), text = line(1, "b") + "\n";
  folder.write(name, text);
  EXPECT_TRUE(contains(error_of([&] { StepFile(folder / name, {.run = "a"}, "--metrics"); }),
                       "': it belongs to another run and cannot be copied to '"));
  EXPECT_EQ(folder.read(name), text);
}

TEST(StepFile, ReportsAPipeWithoutReader) {
  TemporaryFolder folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_TRUE(contains(error_of([&] { StepFile(folder / "pipe", {}, "--metrics"); }),
                       "no process reads this pipe; give another --metrics"));
}

TEST(StepFile, IsForOneRunAtATime) {
  TemporaryFolder folder;
  const auto path = folder / "curve";
  std::filesystem::create_symlink("curve", folder / "link");
  const std::string one = "{\"step\":1,\"epoch\":0}";
  {
    StepFile first(path, {}, "--metrics");
    first.write(one);
    EXPECT_EQ(error_of([&] { StepFile(folder / "link", {}, "--sample-log"); }),
              "cannot write '" + (folder / "link").string() +
                  "': another run, or another option of this run, writes to it; give another "
                  "--sample-log");
    EXPECT_EQ(folder.read("curve"), one + "\n");
  }
  const StepFile next(path, {.step = 1}, "--metrics");
  EXPECT_EQ(folder.read("curve"), one + "\n");
}

}  // namespace
}  // namespace torchbridge::train
