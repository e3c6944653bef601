#include "trainer_template/runtime/formats/event_record.h"

#include <string>

#include <gtest/gtest.h>

namespace torchbridge::train {
namespace {

// RFC 3720, appendix B.4, and the check value of "123456789" in catalogues of checksums.
TEST(EventRecord, ChecksumIsCastagnolis) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(EventRecord, RecordHasLengthAndTwoChecksums) {
  const std::string record = tf_record("abc");
  EXPECT_EQ(record.size(), 8 + 4 + 3 + 4u);
  EXPECT_EQ(record.substr(0, 8), std::string("\x03\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(record.substr(12, 3), "abc");
}

// 09 wall time, 10 05 step, 2a summary { 0a value { 0a tag, 15 simple value } }.
TEST(EventRecord, ScalarIsAnEvent) {
  const std::string event = scalar_event(1.0, 5, "loss", 0.5f);
  EXPECT_EQ(event,
            std::string(
                "\x09\0\0\0\0\0\0\xf0\x3f\x10\x05\x2a\x0d\x0a\x0b\x0a\x04loss\x15\0\0\0\x3f", 26));
}

}  // namespace
}  // namespace torchbridge::train
