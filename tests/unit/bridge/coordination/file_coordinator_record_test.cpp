#include <fcntl.h>
#include <sys/file.h>

#include <gtest/gtest.h>

#include "bridge/coordination/coordinator_record.h"
#include "bridge/net/socket.h"
#include "tests/support/temporary_folder.h"

using namespace torchbridge;

namespace {

const Endpoint kOwn{"10.0.0.2", 4000};

TEST(FileRecord, TheFirstAgentTakesItAndTheSecondReadsIt) {
  TemporaryFolder folder;
  const auto first = file_coordinator_record(folder / "record"), second = file_coordinator_record(folder / "record");
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
  const auto first = file_coordinator_record(folder / "record"), second = file_coordinator_record(folder / "record");
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
  const auto read = file_coordinator_record(folder / "record")->take_or_read(kOwn);
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().message.find("it contains 'my notes"), std::string::npos) << read.error().message;
  EXPECT_EQ(folder.read("record"), "my notes\n");
}

}  // namespace
