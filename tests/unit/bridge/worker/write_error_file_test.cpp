#include "bridge/worker/write_error_file.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>

#include <gtest/gtest.h>

#include "tests/support/child_ending.h"
#include "tests/support/temporary_folder.h"

namespace torchbridge {
namespace {

const char* const kStart =
    R"({"message": {"message": "ValueError: x", "extraInfo": {"py_callstack": )";

TEST(WriteErrorFile, WritesTheMessageAndTheCallstack) {
  const TemporaryFolder folder;
  const auto path = folder / "error.json";
  ASSERT_TRUE(write_error_file(path, "ValueError: x", "main\n"));
  EXPECT_TRUE(
      folder.read("error.json").starts_with(std::string(kStart) + R"("main\n", "timestamp": "1)"));
  ASSERT_TRUE(write_error_file(path, "ValueError: x"));  // shorter: what was there is gone
  EXPECT_TRUE(folder.read("error.json")
                  .starts_with(std::string(kStart) + R"("ValueError: x", "timestamp": "1)"));
  EXPECT_TRUE(folder.read("error.json").ends_with("\"}}}"));
}

TEST(WriteErrorFile, NamesAFileThatCannotBeWritten) {
  const TemporaryFolder folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  const struct {
    std::string name, reason;
  } kCases[] = {
      {folder / "missing/error.json", "No such file or directory"},
      {folder.path(), "Is a directory"},
      {folder / "pipe", "No such device or address"},  // nobody reads: it would wait
      {"", "No such file or directory"},
  };
  for (const auto& test : kCases) {
    const auto written = write_error_file(test.name, "x");
    ASSERT_FALSE(written) << test.name;
    EXPECT_EQ(written.error().message,
              "cannot write the error file '" + test.name + "': " + test.reason);
  }
}

TEST(WriteErrorFile, LeavesNoHalfOfAFile) {
  const TemporaryFolder folder;
  const auto path = folder / "error.json";
  const auto write_within_limit = [&] {
    constexpr rlimit kLimit{100, 100};
    setrlimit(RLIMIT_FSIZE, &kLimit);
    signal(SIGXFSZ, SIG_IGN);
    const auto written = write_error_file(path, std::string(200, 'x'));
    _exit(!written && written.error().message.ends_with(": File too large") ? 3 : 4);
  };
  EXPECT_EQ(ending_of_child(write_within_limit), exited(3));
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace torchbridge
