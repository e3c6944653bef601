#include "trainer_template/runtime/output/event_file.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"
#include "trainer_template/runtime/base/errors.h"

namespace torchbridge::train {
namespace {

// RFC 3720, appendix B.4, and the check value of "123456789" in catalogues of checksums.
TEST(EventFile, ChecksumIsCastagnolis) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(EventFile, RecordHasLengthAndTwoChecksums) {
  const std::string record = tf_record("abc");
  EXPECT_EQ(record.size(), 8 + 4 + 3 + 4u);
  EXPECT_EQ(record.substr(0, 8), std::string("\x03\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(record.substr(12, 3), "abc");
}

// 09 wall time, 10 05 step, 2a summary { 0a value { 0a tag, 15 simple value } }.
TEST(EventFile, ScalarIsAnEvent) {
  const std::string event = scalar_event(1.0, 5, "loss", 0.5f);
  EXPECT_EQ(event, std::string("\x09\0\0\0\0\0\0\xf0\x3f\x10\x05\x2a\x0d\x0a\x0b\x0a\x04loss\x15\0\0\0\x3f", 26));
}

// Within a second, of one process or of several: TensorBoard reads files in the order of their names.
TEST(EventFile, NamesAreInTheOrderOfTheStarts) {
  TemporaryFolder folder;
  std::vector<std::string> names;
  for (int start = 0; start < 3; ++start) {
    const EventFile file(folder.path(), start);
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
      found.push_back(entry.path().filename());
    std::ranges::sort(found);
    ASSERT_EQ(found.size(), names.size() + 1);
    EXPECT_TRUE(std::equal(names.begin(), names.end(), found.begin()));
    names = found;
  }
}

TEST(EventFile, NamesAFileThatItCannotWrite) {
  TemporaryFolder folder;
  std::ofstream(folder / "file") << "x";
  try {
    EventFile events(folder / "file", 0);
    FAIL() << "wrote into a file as if it were a folder";
  } catch (const TrainError& error) {
    EXPECT_NE(std::string(error.what()).find(folder / "file"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace torchbridge::train
