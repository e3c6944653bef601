#include "bridge/step/error_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/mapped_root.h"

namespace torchbridge {
namespace {

class ErrorFile : public ::testing::Test {
 protected:
  ErrorFile() {
    std::string pattern = testing::TempDir() + "error_file_XXXXXX";
    parent_ = mkdtemp(pattern.data());
    folder_ = parent_ + "/torch-env-" + std::to_string(geteuid());
  }
  ~ErrorFile() override { std::filesystem::remove_all(parent_); }

  std::string parent_, folder_;
};

TEST_F(ErrorFile, IsInAFolderOfTheUsersOwn) {
  const auto file = error_file_in(parent_, "slurm-1.0", 2, 3);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(*file, folder_ + "/slurm-1.0-attempt_2-rank_3-error.json");
  struct stat found {};
  ASSERT_EQ(stat(folder_.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777, 0700u);
  EXPECT_TRUE(error_file_in(parent_, "slurm-1.0", 2, 4));  // the folder is there already
}

TEST_F(ErrorFile, IsNotPutWhereOthersCouldReachIt) {
  std::filesystem::create_directory(folder_);
  ASSERT_EQ(chmod(folder_.c_str(), 0777), 0);
  EXPECT_FALSE(error_file_in(parent_, "slurm-1.0", 0, 0));
}

TEST_F(ErrorFile, OfRootInAUserNamespaceIsInTheFolderOfTheUserOutside) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  constexpr uid_t kDaemon = 1, kBin = 2;
  ASSERT_EQ(chmod(parent_.c_str(), 01777), 0);
  for (const uid_t user : {kDaemon, kBin}) {
    const std::string folder = parent_ + "/torch-env-" + std::to_string(user) + "/";
    const auto found = as_mapped_root(user, [&] {
      const auto file = error_file_in(parent_, "slurm-1.0", 0, 0);
      return file && file->starts_with(folder);
    });
    if (!found) GTEST_SKIP() << "this machine makes no user namespaces";
    EXPECT_TRUE(*found) << user;
  }
}

TEST_F(ErrorFile, DoesNotFollowALink) {
  const std::string elsewhere = parent_ + "/elsewhere";
  ASSERT_EQ(mkdir(elsewhere.c_str(), 0700), 0);
  std::filesystem::create_symlink(elsewhere, folder_);
  EXPECT_FALSE(error_file_in(parent_, "slurm-1.0", 0, 0));
}

using std::chrono::hours;
using std::chrono::system_clock;

std::string read(const std::string& path, system_clock::time_point start) {
  const auto file = open_error_folder(path);
  return read_error_file(file.folder, file.name, start).text;
}

TEST_F(ErrorFile, IsReadUnlessItIsOlderThanTheTask) {
  const std::string file = parent_ + "/error.json";
  const auto start = system_clock::now();
  std::ofstream(file) << "the reason";
  EXPECT_EQ(read(file, start), "the reason");
  EXPECT_EQ(read(file, system_clock::now() + hours(1)), "");
}

TEST_F(ErrorFile, IsNotReadWhereItIsAnotherUsers) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  const std::string file = parent_ + "/error.json";
  std::ofstream(file) << "somebody else's";
  ASSERT_EQ(chown(file.c_str(), 65534, 65534), 0);
  EXPECT_EQ(read(file, system_clock::now() - hours(1)), "");
}

TEST_F(ErrorFile, IsNotReadThroughALinkOrAPipe) {
  std::ofstream(parent_ + "/other") << "somebody else's";
  std::filesystem::create_symlink(parent_ + "/other", parent_ + "/link");
  ASSERT_EQ(mkfifo((parent_ + "/pipe").c_str(), 0600), 0);
  for (const char* name : {"/link", "/pipe", "/missing", ""}) {
    EXPECT_EQ(read(parent_ + name, system_clock::now() - hours(1)), "") << name;
  }
}

}  // namespace
}  // namespace torchbridge
