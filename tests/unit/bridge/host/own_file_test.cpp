#include "bridge/host/own_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "tests/support/mapped_root.h"
#include "tests/support/temporary_folder.h"

using namespace torchbridge;

namespace {

TEST(FileOwner, IsThisUserOrRoot) {
  struct stat file {};
  file.st_mode = S_IFREG | 0600;
  file.st_uid = geteuid();
  EXPECT_EQ(access_of_others(kReadOrWrite, file), "");
  file.st_uid = 0;
  EXPECT_EQ(access_of_others(kReadOrWrite, file), "");
  file.st_uid = geteuid() + 1;
  EXPECT_EQ(access_of_others(0, file), "belongs to uid " + std::to_string(geteuid() + 1));
}

TEST(FileOwner, MayKeepGroupAndOthersFromReadingOrFromWriting) {
  struct stat file {};
  file.st_uid = geteuid();
  const struct {
    mode_t mode;
    bool others_read, others_write;
  } kCases[] = {{0600, false, false}, {0640, true, false},  {0604, true, false}, {0620, true, true},
                {0602, true, true},   {0700, false, false}, {0755, true, false}};
  for (const auto& test : kCases) {
    file.st_mode = S_IFREG | test.mode;
    EXPECT_EQ(!access_of_others(kReadOrWrite, file).empty(), test.others_read)
        << std::oct << test.mode;
    EXPECT_EQ(!access_of_others(kWrite, file).empty(), test.others_write) << std::oct << test.mode;
  }
  file.st_mode = S_IFDIR | S_ISVTX | 0777;
  EXPECT_EQ(access_of_others(kWrite, file), "has the mode 1777");
}

std::string refusal_of(const std::string& path) {
  const auto file = open_own_file(path);
  if (file) close(*file);
  return file ? "" : file.error().message;
}

TEST(OwnFile, IsMadeForThisUserAlone) {
  TemporaryFolder folder;
  const std::string path = folder / "file";
  EXPECT_EQ(refusal_of(path), "");
  struct stat found {};
  ASSERT_EQ(stat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode, S_IFREG | 0600u);
  EXPECT_EQ(refusal_of(path), "") << "the second time it is there";
}

TEST(OwnFile, LiesInAFolderThatOthersCannotWrite) {
  TemporaryFolder folder;
  const std::string inner = folder / "inner", path = inner + "/file";
  EXPECT_EQ(refusal_of(path), "folder '" + inner + "': No such file or directory");
  ASSERT_EQ(mkdir(inner.c_str(), 0700), 0);
  for (const mode_t mode : {0777u, 0770u, 0707u}) {
    ASSERT_EQ(chmod(inner.c_str(), mode), 0);
    EXPECT_NE(refusal_of(path).find("so that another user may replace the file"), std::string::npos)
        << mode;
    EXPECT_NE(access(path.c_str(), F_OK), 0) << "nothing is made there";
  }
  ASSERT_EQ(chmod(inner.c_str(), 01777), 0);
  EXPECT_EQ(refusal_of(path), "") << "as /tmp";
  if (geteuid() != 0) GTEST_SKIP() << "another owner needs root";
  ASSERT_EQ(chown(inner.c_str(), 1, 1), 0);
  EXPECT_NE(refusal_of(path).find("belongs to uid 1"), std::string::npos)
      << "who may replace all files in it";
}

// There the owner of /tmp has no number, as many users have none.
TEST(OwnFile, MayLieInTmpInAUserNamespace) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  constexpr uid_t kDaemon = 1;
  const std::string name = "/torchbridge-own-file-" + std::to_string(getpid());
  const auto opens = [&](const std::string& folder) {
    const bool is_open = refusal_of(folder + name).empty();
    unlink((folder + name).c_str());
    return is_open;
  };
  TemporaryFolder folder;
  ASSERT_EQ(chmod(folder.path().c_str(), 01777), 0);
  const auto found =
      as_mapped_root(kDaemon, [&] { return opens("/tmp") && !opens(folder.path()); });
  if (!found) GTEST_SKIP() << "this machine makes no user namespaces";
  EXPECT_TRUE(*found);
}

TEST(OwnFile, CannotBeReadByOthersWhoCouldThenLockIt) {
  TemporaryFolder folder;
  folder.write("file", "");
  for (const mode_t mode : {0644u, 0640u, 0604u, 0666u}) {
    ASSERT_EQ(chmod((folder / "file").c_str(), mode), 0);
    EXPECT_NE(refusal_of(folder / "file")
                  .find(": give a file that this user alone can read and write (chmod 600)"),
              std::string::npos)
        << mode;
  }
}

TEST(OwnFile, IsAFileAndNotWhatALinkNames) {
  TemporaryFolder folder;
  ASSERT_EQ(symlink((folder / "target").c_str(), (folder / "link").c_str()), 0);
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(refusal_of(folder / "link"), "it is a symbolic link: give the file itself");
  EXPECT_NE(access((folder / "target").c_str(), F_OK), 0) << "what the link names is not made";
  EXPECT_EQ(refusal_of(folder / "pipe"), "it is no file");
  EXPECT_EQ(refusal_of(folder.path()), "it is no file");
}

}  // namespace
