// The part of a checkpoint's files that one rank writes, and what the manifest must say about the whole of them.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer_template/runtime/base/file_layer.h"
#include "trainer_template/runtime/checkpoint_format/manifest.h"

namespace torchbridge::train {

// Bytes [begin, end) of a file.
struct ByteRange {
  std::uint64_t begin = 0, end = 0;

  std::uint64_t size() const { return end - begin; }
  bool operator==(const ByteRange&) const = default;
};

// What writer `index` of `count` writes of a file of `size` bytes: about as much as the others, at multiples of a
// mebibyte, so that no two writers meet in a page or a stripe, which network file systems do not keep apart. Empty
// where nothing is left.
ByteRange range_of_writer(std::uint64_t size, int index, int count);

// A range of one file, to be written by this rank.
struct FileShard {
  std::string name;
  std::uint64_t file_size = 0;
  ByteRange range;
  // The bytes of the range, one behind the other: the header or a part of it, then tensors or parts of them. Each gets
  // a checksum. Not owned.
  std::vector<std::string_view> pieces;
};

// What was written of a file. The whole-file checksum is there where this was all of it.
struct ShardRecord {
  FileRecord file;
  std::uint64_t begin = 0;
};

struct WritePace {
  double bytes_per_s = 0;  // 0: as fast as the disk takes them
  // Waits, unless it is to be given up: then it throws, and writing ends there. Called between blocks of a few MiB.
  std::function<void(std::chrono::nanoseconds)> wait;
};

// Writes the shards into `folder`, each file synced. Checksums are taken block by block on the way. Throws TrainError.
std::vector<ShardRecord> write_shards(FileLayer& files, const std::filesystem::path& folder,
                                      const std::vector<FileShard>& shards, const WritePace& pace);

// One line a file and piece, and back. For other ranks of the same program.
std::string to_text(const std::vector<ShardRecord>& records);
std::vector<ShardRecord> records_from(const std::string& text);

// The files, whole, from what all ranks have written; by name. Throws TrainError where something is missing between
// them.
std::vector<FileRecord> joined(std::vector<ShardRecord> records);

}  // namespace torchbridge::train
