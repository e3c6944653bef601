#include "trainer_template/runtime/checkpoint_format/file_shard.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include <torchbridge/errors.h>

#include "tests/support/faulty_files.h"
#include "tests/support/temporary_folder.h"
#include "trainer_template/runtime/checkpoint_format/checksum.h"

namespace torchbridge::train {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

std::string distinct_bytes(std::size_t size) {
  std::string content(size, '\0');
  for (std::size_t i = 0; i < content.size(); ++i)
    content[i] = static_cast<char>(i * 2654435761u >> 13);
  return content;
}

// Memory that begins `behind` bytes after an address that is aligned for direct writes.
class Placed {
 public:
  Placed(std::string_view content, std::size_t behind)
      : memory_(new (std::align_val_t(kDirectAlignment)) char[content.size() + behind]),
        bytes_(memory_.get() + behind, content.size()) {
    std::ranges::copy(content, memory_.get() + behind);
  }
  std::string_view bytes() const { return bytes_; }

 private:
  struct Delete {
    void operator()(char* memory) const {
      operator delete[](memory, std::align_val_t(kDirectAlignment));
    }
  };
  std::unique_ptr<char, Delete> memory_;
  std::string_view bytes_;
};

std::size_t pages_in_memory(const std::filesystem::path& path) {
  const std::size_t size = std::filesystem::file_size(path), page = sysconf(_SC_PAGESIZE);
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  void* const mapped = mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
  std::vector<unsigned char> resident((size + page - 1) / page);
  EXPECT_EQ(mincore(mapped, size, resident.data()), 0);
  munmap(mapped, size);
  close(file);
  return std::ranges::count_if(resident, [](unsigned char one) { return (one & 1) != 0; });
}

TEST(RangeOfWriter, CoversEachByteOnce) {
  for (const std::uint64_t size :
       {std::uint64_t{0}, std::uint64_t{1}, kMiB, kMiB + 1, 10 * kMiB + 7, 1000 * kMiB}) {
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

TEST(FileShard, AllWritersTogetherWriteTheWholeFile) {
  TemporaryFolder folder;
  const std::string content = distinct_bytes(5 * kMiB + 123);
  std::vector<ShardRecord> records;
  for (const int index : {2, 0, 1}) {
    const ByteRange range = range_of_writer(content.size(), index, 3);
    const std::string_view bytes = std::string_view(content).substr(range.begin, range.size());
    const FileShard shard{.name = "file",
                          .file_size = content.size(),
                          .range = range,
                          .pieces = {bytes.substr(0, 1000), bytes.substr(1000)}};
    for (ShardRecord& each : write_shards(real_files(), folder / "step", {shard}, {}))
      records.push_back(each);
  }
  EXPECT_EQ(folder.read("step/file"), content);
  const std::vector<FileRecord> files = joined(*records_from(to_text(records)));
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

TEST(FileShard, ARecordOfAnotherFormIsAnError) {
  for (const char* text :
       {"x 8 0 - 30000000", "x 8 0 - 2\n8 a\n", "x 8 0 -", "x", "x 8 0 - -1", "x 8 0 - 1\n8 a\nx"})
    EXPECT_FALSE(records_from(text)) << text;
  EXPECT_TRUE(records_from("")->empty());
  EXPECT_EQ(records_from("x 8 0 - 1\n8 a\n")->size(), 1u);
}

TEST(FileShard, AFileOfOneWriterHasTheChecksumThatXxh128sumPrints) {
  TemporaryFolder folder;
  const FileShard shard{.name = "file", .file_size = 6, .range = {0, 6}, .pieces = {"abc", "def"}};
  const auto records = write_shards(real_files(), folder / "step", {shard}, {});
  EXPECT_EQ(joined(records)[0].xxh3, checksum_of("abcdef"));
}

// Contiguous pieces are written without a copy, other pieces are gathered into blocks.
TEST(FileShard, WritesTheSameFileForAnyPlacementOfItsPieces) {
  const std::string content = distinct_bytes(13 * kMiB + 4097);
  const std::vector<std::size_t> cuts = {0,        100,          4096,          5 * kMiB,
                                         5 * kMiB, 9 * kMiB + 1, content.size()};
  for (const std::size_t behind : {0, 8, 4095}) {
    const Placed whole(content, behind);
    // Bit i: piece i is in separate memory.
    for (const unsigned apart : {0u, 0b000001u, 0b001010u, 0b111111u}) {
      SCOPED_TRACE(std::to_string(behind) + " bytes behind, apart " + std::to_string(apart));
      TemporaryFolder folder;
      std::vector<std::unique_ptr<Placed>> own;
      FileShard shard{.name = "file", .file_size = content.size(), .range = {0, content.size()}};
      for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
        const std::string_view piece = whole.bytes().substr(cuts[i], cuts[i + 1] - cuts[i]);
        shard.pieces.push_back(
            (apart >> i & 1) == 0
                ? piece
                : own.emplace_back(std::make_unique<Placed>(piece, behind))->bytes());
      }
      const auto files = joined(write_shards(real_files(), folder / "step", {shard}, {}));
      EXPECT_TRUE(folder.read("step/file") == content);
      EXPECT_EQ(files.at(0).xxh3, checksum_of(content));
      for (std::size_t i = 0; i + 1 < cuts.size(); ++i)
        EXPECT_EQ(files[0].parts.at(i).xxh3, checksum_of(shard.pieces[i])) << i;
    }
  }
}

TEST(FileShard, LeavesNoPageInThePageCacheAfterDirectWrites) {
  TemporaryFolder folder;
  struct statfs system {};
  ASSERT_EQ(statfs(folder.path().c_str(), &system), 0);
  if (system.f_type != EXT4_SUPER_MAGIC && system.f_type != XFS_SUPER_MAGIC)
    GTEST_SKIP() << "temporary files are on another file system";
  const Placed content(distinct_bytes(9 * kMiB + 1), 0);
  const FileShard shard{.name = "file",
                        .file_size = content.bytes().size(),
                        .range = {0, content.bytes().size()},
                        .pieces = {content.bytes()}};
  write_shards(real_files(), folder / "step", {shard}, {});
  EXPECT_LE(pages_in_memory(folder / "step/file"), 1u);  // the last one, of one byte
}

TEST(FileShard, EveryFailedOperationThrows) {
  const std::string content = distinct_bytes(13 * kMiB);
  const FileShard shard{.name = "file",
                        .file_size = content.size(),
                        .range = {0, content.size()},
                        .pieces = {content}};
  constexpr int kOperations = 1 + 1 + 4 + 1;  // folder, open, four blocks, sync
  for (int good = 0; good <= kOperations; ++good) {
    TemporaryFolder folder;
    FullDisk disk(good, ENOSPC, true);
    const std::string error = error_of([&] { write_shards(disk, folder / "step", {shard}, {}); });
    if (good == kOperations) {
      EXPECT_EQ(error, "");
    } else {
      EXPECT_TRUE(contains(error, "No space left on device")) << good;
    }
  }
}

TEST(FileShard, DetectsMissingAndOverlappingShards) {
  const ShardRecord first{.file = {.name = "file", .size = 10, .parts = {{.size = 4}}}, .begin = 0};
  const ShardRecord late{.file = {.name = "file", .size = 10, .parts = {{.size = 5}}}, .begin = 5};
  const ShardRecord longer{.file = {.name = "file", .size = 11, .parts = {{.size = 7}}},
                           .begin = 4};
  EXPECT_TRUE(contains(error_of([&] { joined({first}); }), "file was not written completely"));
  EXPECT_TRUE(contains(error_of([&] { joined({first, late}); }), "do not fit together"));
  EXPECT_TRUE(contains(error_of([&] { joined({first, longer}); }), "do not fit together"));
}

}  // namespace
}  // namespace torchbridge::train
