#include <torchbridge/train/checkpoint/checksum.h>
#include <torchbridge/train/checkpoint/file_share.h>
#include <torchbridge/train/errors.h>

#include "temporary_folder.h"

namespace torchbridge::train {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

TEST(RangeOfWriter, CoversTheFileWithoutAByteTwice) {
  for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{1}, kMiB, kMiB + 1, 10 * kMiB + 7, 1000 * kMiB}) {
    for (const int count : {1, 2, 3, 7, 64}) {
      std::uint64_t end = 0, most = 0;
      for (int index = 0; index < count; ++index) {
        const ByteRange range = range_of_writer(size, index, count);
        EXPECT_EQ(range.begin, end);
        EXPECT_TRUE(range.begin % kMiB == 0 || range.begin == size);
        end = range.end;
        most = std::max(most, range.size());
      }
      EXPECT_EQ(end, size);
      EXPECT_LE(most, size / count + kMiB) << size << " among " << count;
    }
  }
}

TEST(FileShare, WritersOfOneFileMakeItWhole) {
  TemporaryFolder folder;
  std::string content(5 * kMiB + 123, '\0');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 2654435761u >> 13);
  std::vector<ShareRecord> records;
  for (const int index : {2, 0, 1}) {
    const ByteRange range = range_of_writer(content.size(), index, 3);
    const std::string_view bytes = std::string_view(content).substr(range.begin, range.size());
    const FileShare share{.name = "file", .file_size = content.size(), .range = range, .pieces = {bytes.substr(0, 1000), bytes.substr(1000)}};
    for (ShareRecord& each : write_shares(real_files(), folder / "step", {share}, {})) records.push_back(each);
  }
  EXPECT_EQ(folder.read("step/file"), content);
  const std::vector<FileRecord> files = joined(records_from(to_text(records)));
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].size, content.size());
  EXPECT_EQ(files[0].xxh3, "");
  ASSERT_EQ(files[0].parts.size(), 6u);
  std::size_t begin = 0;
  for (const FilePart& part : files[0].parts) {
    EXPECT_EQ(part.xxh3, checksum_of(std::string_view(content).substr(begin, part.size)));
    begin += part.size;
  }
}

TEST(FileShare, AFileOfOneWriterHasTheChecksumThatXxh128sumPrints) {
  TemporaryFolder folder;
  const FileShare share{.name = "file", .file_size = 6, .range = {0, 6}, .pieces = {"abc", "def"}};
  const auto records = write_shares(real_files(), folder / "step", {share}, {});
  EXPECT_EQ(joined(records)[0].xxh3, checksum_of("abcdef"));
}

TEST(FileShare, WhatIsMissingBetweenWritersIsFound) {
  const ShareRecord first{.file = {.name = "file", .size = 10, .parts = {{.size = 4}}}, .begin = 0};
  const ShareRecord late{.file = {.name = "file", .size = 10, .parts = {{.size = 5}}}, .begin = 5};
  const ShareRecord longer{.file = {.name = "file", .size = 11, .parts = {{.size = 7}}}, .begin = 4};
  EXPECT_TRUE(contains(error_of([&] { joined({first}); }), "file was not written as a whole"));
  EXPECT_TRUE(contains(error_of([&] { joined({first, late}); }), "does not fit together"));
  EXPECT_TRUE(contains(error_of([&] { joined({first, longer}); }), "does not fit together"));
}

}  // namespace
}  // namespace torchbridge::train
