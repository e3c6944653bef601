#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "bridge/coordination/coordinator_record.h"
#include "bridge/net/socket.h"
#include "tests/support/temporary_folder.h"

using namespace torchbridge;

namespace {

const Endpoint kOwn{"10.0.0.2", 4000};

TEST(FileRecord, TheFirstAgentTakesItAndTheSecondReadsIt) {
  TemporaryFolder folder;
  const auto first = file_coordinator_record(folder / "record"),
             second = file_coordinator_record(folder / "record");
  const auto taken = first->take_or_read(kOwn);
  ASSERT_TRUE(taken);
  EXPECT_TRUE(taken->is_self);
  const auto read = second->take_or_read({"10.0.0.3", 1});
  ASSERT_TRUE(read);
  EXPECT_FALSE(read->is_self);
  EXPECT_EQ(read->coordinator, kOwn);
}

TEST(FileRecord, TheNextAgentGoesOnWithTheRestarts) {
  TemporaryFolder folder;
  const auto first = file_coordinator_record(folder / "record"),
             second = file_coordinator_record(folder / "record");
  ASSERT_TRUE(first->take_or_read({"fe80::1234:5678", 4000}));
  ASSERT_TRUE(first->set_restarts({3, true}));
  first->release();
  const auto taken = second->take_or_read({"::1", 1});
  ASSERT_TRUE(taken);
  EXPECT_TRUE(taken->is_self);
  EXPECT_EQ(second->restarts()->used, 3);
  EXPECT_TRUE(second->restarts()->is_left);
  ASSERT_TRUE(second->set_restarts({4, false}));
  const auto read = file_coordinator_record(folder / "record")->take_or_read(kOwn);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->coordinator, (Endpoint{"::1", 1}));
}

TEST(FileRecord, OneThatItsOwnerIsWritingNamesNobodyYet) {
  TemporaryFolder folder;
  folder.write("record", "2 10.0.0.3:40000\n0\n");  // a shorter line over a longer one
  ASSERT_EQ(chmod((folder / "record").c_str(), 0600), 0);
  const Socket owner(open((folder / "record").c_str(), O_RDWR));
  ASSERT_EQ(flock(owner.descriptor(), LOCK_EX | LOCK_NB), 0);
  const auto read = file_coordinator_record(folder / "record")->take_or_read(kOwn);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_FALSE(read->is_self);
  EXPECT_EQ(read->coordinator.port, 0);
}

TEST(FileRecord, AFileOfAnotherKindIsLeftAlone) {
  TemporaryFolder folder;
  folder.write("record", "my notes\n");
  ASSERT_EQ(chmod((folder / "record").c_str(), 0600), 0);
  const auto read = file_coordinator_record(folder / "record")->take_or_read(kOwn);
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().message.find("it contains 'my notes"), std::string::npos)
      << read.error().message;
  EXPECT_EQ(folder.read("record"), "my notes\n");
}

std::string refusal_of(const std::string& path) {
  const auto taken = file_coordinator_record(path)->take_or_read(kOwn);
  return taken ? "" : taken.error().message;
}

TEST(FileRecord, OfAnotherUserIsNotBelieved) {
  TemporaryFolder folder;
  const std::string path = folder / "record";
  constexpr uid_t kNobody = 65534;
  folder.write("record", "0 10.9.9.9:666\n");
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  EXPECT_NE(
      refusal_of(path).find("record', with store_type=file: it has the mode 0666: give a file"),
      std::string::npos)
      << refusal_of(path);
  if (geteuid() != 0) GTEST_SKIP() << "another owner needs root";
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  ASSERT_EQ(chown(path.c_str(), kNobody, kNobody), 0);
  EXPECT_NE(
      refusal_of(path).find(
          "record', with store_type=file: it belongs to uid 65534: give a file that this user "
          "alone can read and write (chmod 600)"),
      std::string::npos)
      << refusal_of(path);
}

TEST(FileRecord, InAFolderThatOthersMayWriteIsNotBelieved) {
  TemporaryFolder folder;
  const std::string inner = folder / "inner", path = inner + "/record";
  ASSERT_EQ(mkdir(inner.c_str(), 0700), 0);
  for (const mode_t mode : {0777u, 0770u, 0707u}) {
    ASSERT_EQ(chmod(inner.c_str(), mode), 0);
    EXPECT_NE(refusal_of(path).find("so that another user may replace the file"), std::string::npos)
        << refusal_of(path);
  }
  ASSERT_EQ(chmod(inner.c_str(), 01777), 0) << "as /tmp";
  EXPECT_EQ(refusal_of(path), "");
}

TEST(FileRecord, IsAFileAndNotWhatALinkNames) {
  TemporaryFolder folder;
  folder.write("target", "");
  ASSERT_EQ(symlink((folder / "target").c_str(), (folder / "link").c_str()), 0);
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_NE(refusal_of(folder / "link").find("it is a symbolic link"), std::string::npos)
      << refusal_of(folder / "link");
  EXPECT_NE(refusal_of(folder / "pipe").find("it is no file"), std::string::npos)
      << refusal_of(folder / "pipe");
}

TEST(FileRecord, NamesANumericAddress) {
  for (const char* content :
       {"0 evil.example:1\n", "0 10.0.0.1\n", "0 10.0.0.1:0\n", "0 10.0.0.1:70000\n",
        "-1 10.0.0.1:5\n", "99999999999 10.0.0.1:5\n"}) {
    TemporaryFolder folder;
    folder.write("record", content);
    ASSERT_EQ(chmod((folder / "record").c_str(), 0600), 0);
    EXPECT_NE(refusal_of(folder / "record").find("not a coordinator's address"), std::string::npos)
        << content;
  }
}

}  // namespace
