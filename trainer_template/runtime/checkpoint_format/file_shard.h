// The part of a checkpoint's files that one rank writes, and their records in the manifest.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bridge/base/result.h"
#include "trainer_template/runtime/checkpoint_format/file_layer.h"
#include "trainer_template/runtime/checkpoint_format/manifest.h"

namespace torchbridge::train {

// Bytes [begin, end) of a file.
struct ByteRange {
  std::uint64_t begin = 0, end = 0;

  std::uint64_t size() const { return end - begin; }
  bool operator==(const ByteRange&) const = default;
};

// The part of a file of `size` bytes that writer `index` of `count` writes. Parts are about equal
// and begin at multiples of 1 MiB, so that no two writers write to one page or stripe: network file
// systems do not keep such writes apart. Empty if nothing is left.
ByteRange range_of_writer(std::uint64_t size, int index, int count);

// A range of one file, to be written by this rank.
struct FileShard {
  std::string name;
  std::uint64_t file_size = 0;
  ByteRange range;
  // The bytes of the range in order: the header or a part of it, then tensors or parts of them.
  // Each piece gets a checksum. Not owned.
  std::vector<std::string_view> pieces;
};

// The record of a written shard. file.xxh3 is set only if the shard is the whole file.
struct ShardRecord {
  FileRecord file;
  std::uint64_t begin = 0;
};

struct WritePace {
  double bytes_per_s = 0;  // 0: no limit
  // Waits for this time; throws to cancel the save. Called between blocks of 4 MiB.
  std::function<void(std::chrono::nanoseconds)> wait;
};

// Writes the shards into `folder` and syncs each file. Computes the checksums while it writes.
// Throws TrainError.
std::vector<ShardRecord> write_shards(FileLayer& files, const std::filesystem::path& folder,
                                      const std::vector<FileShard>& shards, const WritePace& pace);

// The records as text, one line for each file and each piece, and back: an error where it has
// another form. The ranks send it to rank 0.
std::string to_text(const std::vector<ShardRecord>& records);
Result<std::vector<ShardRecord>> records_from(const std::string& text);

// The records of whole files, by name, from the shards of all ranks. Throws TrainError if the
// shards do not cover a file.
std::vector<FileRecord> joined(std::vector<ShardRecord> records);

}  // namespace torchbridge::train
