// Checkpoints on file systems that cannot do everything, by tests/programs/failing_files.c.
#include <cerrno>
#include <cstring>

#include "tests/support/paths.h"
#include "tests/support/ranks.h"
#include "tests/support/sanitizer.h"

namespace {

namespace fs = std::filesystem;

class FileSystem : public testing::Test {
 protected:
  void SetUp() override {
    if (kIsSanitized) GTEST_SKIP() << "a sanitizer wants to be the first library";
  }
  // Two ranks save at the steps 1 to 4, and keep two checkpoints.
  Ranks train(const std::string& name, Variables fails) {
    runs_ = folder_ / name;
    fails.emplace("LD_PRELOAD", in_build("tests/programs/libfailing_files.so"));
    return {2,
            trainer({"--max-steps", "4", "--checkpoint-dir", runs_.string(), "--checkpoint-every",
                     "1", "--keep", "2"}),
            fails};
  }
  bool has(const std::string& name) const { return fs::exists(fs::symlink_status(runs_ / name)); }

  TemporaryFolder folder_;
  fs::path runs_;
};

TEST_F(FileSystem, MayLackSyncLinksAndLocks) {
  const struct {
    int file_sync, folder_sync, link, lock;
  } kCases[] = {
      {EOPNOTSUPP, EBADF, EROFS, ENOLCK},
      {ENOSYS, EACCES, EACCES, EOPNOTSUPP},
      {EINVAL, EINVAL, EINVAL, ENOSYS},
  };
  for (const auto& c : kCases) {
    Ranks ranks =
        train(std::to_string(c.file_sync), {{"FAIL_FSYNC", std::to_string(c.file_sync)},
                                            {"FAIL_FOLDER_FSYNC", std::to_string(c.folder_sync)},
                                            {"FAIL_SYMLINK", std::to_string(c.link)},
                                            {"FAIL_FLOCK", std::to_string(c.lock)}});
    expect_success(ranks);
    const std::string folder = "trainer: checkpoint folder '" + runs_.string() + "' ";
    EXPECT_EQ(ranks.errors(), folder + "cannot be locked (" + std::strerror(c.lock) +
                                  "): a second run that uses it is not detected at its start\n" +
                                  folder + "cannot be synced (" + std::strerror(c.file_sync) +
                                  "): checkpoints may be lost or damaged if a machine fails\n" +
                                  folder + "cannot contain links (" + std::strerror(c.link) +
                                  "): there will be no 'latest'\n");
    EXPECT_FALSE(has("step-00000002"));
    EXPECT_TRUE(has("step-00000003/DONE"));
    EXPECT_TRUE(has("step-00000004/DONE"));
    EXPECT_FALSE(has("latest"));
  }
}

// So does one that may pass: it does not say what the file system can do.
TEST_F(FileSystem, AnErrorOfTheDiskAtASyncStaysAnError) {
  for (const int error : {EIO, ENOSPC, EDQUOT, ETIMEDOUT, ESTALE}) {
    Ranks ranks = train(std::to_string(error), {{"FAIL_FSYNC", std::to_string(error)}});
    expect_error(ranks, std::string(std::strerror(error)) +
                            "; give a --checkpoint-dir that all ranks can write to");
  }
}

// It could sync before: this is an error of the data, whatever the code.
TEST_F(FileSystem, ASyncThatFailsLaterIsAnError) {
  Ranks ranks = train("later", {{"FSYNC_WORKS", "5"}, {"FAIL_FSYNC", std::to_string(EINVAL)}});
  expect_error(ranks, "the last state is not saved: ");
  EXPECT_TRUE(contains(ranks.errors(), "Invalid argument"));
  EXPECT_FALSE(has("step-00000004"));
}

// After the last step it does not end the run before its evaluation.
TEST_F(FileSystem, ASyncThatFailsOnceIsTriedAgain) {
  const Words words = trainer({"--max-steps", "4", "--checkpoint-dir", folder_ / "once",
                               "--checkpoint-every", "0", "--metrics", folder_ / "curve"});
  Ranks rank(1, words,
             {{"LD_PRELOAD", in_build("tests/programs/libfailing_files.so")},
              {"FSYNC_WORKS", "5"},
              {"FSYNC_FAILS", "1"},
              {"FAIL_FSYNC", std::to_string(EIO)},
              {"FAIL_FOLDER_FSYNC", std::to_string(EIO)}});
  EXPECT_EQ(rank.wait(), std::vector<int>{0}) << rank.errors();
  EXPECT_TRUE(contains(rank.errors(), "checkpoint of step 4 is not saved: ")) << rank.errors();
  EXPECT_EQ(lines_in(rank.errors()), 1) << rank.errors();
  EXPECT_TRUE(contains(folder_.read("curve"), "\"eval_loss\""));
  EXPECT_TRUE(fs::exists(folder_ / "once/step-00000004/DONE"));
}

}  // namespace
