#include "bridge/host/file_owner.h"

#include <unistd.h>

#include <gtest/gtest.h>

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

}  // namespace
