#include "trainer_template/runtime/checkpoint_format/file_shard.h"

#include <algorithm>
#include <array>
#include <future>
#include <memory>
#include <sstream>
#include <tuple>

#include <torchbridge/errors.h>

#include "trainer_template/runtime/checkpoint_format/checksum.h"

namespace torchbridge::train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kUnit = 1 << 20;              // of ranges
constexpr std::size_t kBlock = std::size_t{4} << 20;  // bytes of one write
// Small enough to stay in the cache between checksum and copy.
constexpr std::size_t kCached = std::size_t{1} << 18;

// Keeps the mean rate of a save below a limit.
class Pacer {
 public:
  explicit Pacer(const WritePace& pace) : pace_(pace) {}
  void wrote(std::size_t bytes) {
    bytes_ += static_cast<double>(bytes);
    if (!pace_.wait) return;
    const auto due = pace_.bytes_per_s > 0
                         ? begin_ + std::chrono::duration_cast<Clock::duration>(
                                        std::chrono::duration<double>(bytes_ / pace_.bytes_per_s))
                         : begin_;
    pace_.wait(std::max(due - Clock::now(), Clock::duration::zero()));
  }

 private:
  const WritePace& pace_;
  const Clock::time_point begin_ = Clock::now();
  double bytes_ = 0;
};

bool is_whole_file(const FileShard& shard) { return shard.range == ByteRange{0, shard.file_size}; }

// Collects bytes into blocks, and writes one block while it collects the next. Aligned contiguous
// bytes are written without a copy: they must not change until finish().
class BlockWriter {
 public:
  // `offset`: where the first byte goes.
  BlockWriter(OutputFile& file, std::uint64_t offset, Pacer& pacer)
      : file_(file), offset_(offset), pacer_(pacer) {}

  void add(std::string_view bytes) {
    while (!bytes.empty()) {
      const std::string_view part = bytes.substr(0, kBlock - block_.size());
      bytes.remove_prefix(part.size());
      if (block_.empty() && reinterpret_cast<std::uintptr_t>(part.data()) % kDirectAlignment == 0) {
        block_ = part;
      } else if (!block_.empty() && block_.data() + block_.size() == part.data()) {
        block_ = {block_.data(), block_.size() + part.size()};
      } else {
        gather(part);
      }
      if (block_.size() == kBlock) write();
    }
  }
  // Returns when all bytes are written.
  void finish() {
    if (!block_.empty()) write();
    wait();
  }

 private:
  struct Buffer {
    alignas(kDirectAlignment) std::array<char, kBlock> bytes;
  };

  // Copies `part` to the end of the block in buffers_[current_]; moves the block there first if it
  // refers to the caller's bytes.
  void gather(std::string_view part) {
    std::unique_ptr<Buffer>& buffer = buffers_[current_];
    if (!buffer) buffer = std::make_unique_for_overwrite<Buffer>();
    char* const begin = buffer->bytes.data();
    if (block_.data() != begin) std::ranges::copy(block_, begin);
    std::ranges::copy(part, begin + block_.size());
    block_ = {begin, block_.size() + part.size()};
  }
  void write() {
    wait();
    const auto write_block = [&file = file_, offset = offset_, block = block_] {
      file.write_at(offset, block);
    };
    // A short last block is not worth a thread. If the system cannot start one, get() writes the
    // block.
    if (block_.size() == kBlock) {
      written_ = std::async(std::launch::async | std::launch::deferred, write_block);
    } else {
      write_block();
    }
    offset_ += block_.size();
    current_ = 1 - current_;
    const std::size_t size = block_.size();
    block_ = {};
    pacer_.wrote(size);
  }
  void wait() {
    if (written_.valid()) written_.get();
  }

  OutputFile& file_;
  std::uint64_t offset_;
  Pacer& pacer_;
  std::string_view block_;
  std::array<std::unique_ptr<Buffer>, 2> buffers_;
  std::size_t current_ = 0;  // the buffer that is not being written
  std::future<void> written_;
};

// The file is written, not synced.
ShardRecord write_shard(BlockWriter& writer, const FileShard& shard) {
  const bool whole = is_whole_file(shard);
  ShardRecord record{.file = {.name = shard.name, .size = shard.file_size},
                     .begin = shard.range.begin};
  Checksum all;
  for (const std::string_view piece : shard.pieces) {
    Checksum own;
    for (std::size_t begin = 0; begin < piece.size(); begin += kCached) {
      const std::string_view bytes = piece.substr(begin, kCached);
      own.add(bytes);
      if (whole) all.add(bytes);
      writer.add(bytes);
    }
    record.file.parts.push_back({.size = piece.size(), .xxh3 = own.digest()});
  }
  writer.finish();
  if (whole) record.file.xxh3 = all.digest();
  return record;
}

}  // namespace

ByteRange range_of_writer(std::uint64_t size, int index, int count) {
  const std::uint64_t units = (size + kUnit - 1) / kUnit;
  const std::uint64_t shard = (units + count - 1) / count * kUnit;
  return {std::min(size, shard * index), std::min(size, shard * (index + 1))};
}

std::vector<ShardRecord> write_shards(FileLayer& files, const std::filesystem::path& folder,
                                      const std::vector<FileShard>& shards, const WritePace& pace) {
  std::vector<ShardRecord> records;
  std::vector<std::unique_ptr<OutputFile>> written;
  Pacer pacer(pace);
  files.make_folder(folder);
  for (const FileShard& shard : shards) {
    if (shard.range.size() == 0) continue;
    const bool whole = is_whole_file(shard);
    written.push_back(files.open(folder / shard.name,
                                 whole ? FileLayer::Owner::kOne : FileLayer::Owner::kSeveral));
    // Destroyed before its file: its destructor waits for a write that still runs after an error.
    BlockWriter writer(*written.back(), shard.range.begin, pacer);
    records.push_back(write_shard(writer, shard));
  }
  // All syncs after all writes: the first one also commits the journal entries of the other files.
  for (const auto& file : written) file->sync();
  for (const auto& file : written) file->close();
  return records;
}

std::string to_text(const std::vector<ShardRecord>& records) {
  std::ostringstream text;
  for (const auto& [file, begin] : records) {
    text << file.name << ' ' << file.size << ' ' << begin << ' '
         << (file.xxh3.empty() ? "-" : file.xxh3) << ' ' << file.parts.size() << '\n';
    for (const FilePart& part : file.parts) text << part.size << ' ' << part.xxh3 << '\n';
  }
  return text.str();
}

Result<std::vector<ShardRecord>> records_from(const std::string& text) {
  std::vector<ShardRecord> records;
  std::istringstream words(text);
  while (!(words >> std::ws).eof()) {
    ShardRecord record;
    std::size_t parts = 0;
    words >> record.file.name >> record.file.size >> record.begin >> record.file.xxh3 >> parts;
    if (record.file.xxh3 == "-") record.file.xxh3.clear();
    for (FilePart part; parts > 0 && words >> part.size >> part.xxh3; --parts)
      record.file.parts.push_back(part);
    if (!words || parts > 0) return Error{"its report of what it wrote has another form"};
    records.push_back(std::move(record));
  }
  return records;
}

std::vector<FileRecord> joined(std::vector<ShardRecord> records) {
  std::sort(records.begin(), records.end(), [](const ShardRecord& a, const ShardRecord& b) {
    return std::tie(a.file.name, a.begin) < std::tie(b.file.name, b.begin);
  });
  std::vector<FileRecord> files;
  std::uint64_t end = 0;  // of the shards of the last file so far
  const auto check_complete = [&] {
    if (!files.empty() && end != files.back().size)
      throw TrainError(files.back().name + " was not written completely");
  };
  for (ShardRecord& record : records) {
    if (files.empty() || files.back().name != record.file.name) {
      check_complete();
      files.push_back(
          {.name = record.file.name, .size = record.file.size, .xxh3 = record.file.xxh3});
      end = 0;
    }
    if (record.begin != end || record.file.size != files.back().size) {
      throw TrainError(record.file.name +
                       ": the parts that the ranks wrote do not fit together: do all ranks have "
                       "the same model?");
    }
    for (FilePart& part : record.file.parts) {
      end += part.size;
      files.back().parts.push_back(std::move(part));
    }
  }
  check_complete();
  return files;
}

}  // namespace torchbridge::train
