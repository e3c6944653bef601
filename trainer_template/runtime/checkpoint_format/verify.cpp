#include "trainer_template/runtime/checkpoint_format/verify.h"

#include <algorithm>
#include <array>
#include <future>
#include <iterator>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "trainer_template/runtime/checkpoint_format/checkpoint_files.h"
#include "trainer_template/runtime/checkpoint_format/checksum.h"
#include "trainer_template/runtime/checkpoint_format/read_file.h"
#include "trainer_template/runtime/formats/safetensors_header.h"

namespace torchbridge::train {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kHeaderLength = 8;
// Threads of each rank: while one computes a checksum, the others keep the disk busy.
constexpr int kReaders = 4;
constexpr std::uint64_t kLargestManifest = 256 << 20;

// Bytes [begin, end) of a file, and their checksum.
struct ChecksumRange {
  const FileRecord* file = nullptr;
  std::uint64_t begin = 0, end = 0;
  std::string_view xxh3;
};

// All ranges in the order of the files and their bytes: of the files in `images` if `whole`, else
// of the others.
std::vector<ChecksumRange> checksum_ranges(const Manifest& manifest, const FileImages& images,
                                           bool whole) {
  std::vector<ChecksumRange> all;
  for (const FileRecord& file : manifest.files) {
    if (images.contains(file.name) != whole) continue;
    std::uint64_t begin = 0;
    for (const FilePart& part : file.parts) {
      all.push_back({&file, begin, begin + part.size, part.xxh3});
      begin += part.size;
    }
    if (file.parts.empty()) all.push_back({&file, 0, file.size, file.xxh3});
  }
  return all;
}

// Consecutive ranges of about as many bytes for each shard. Every rank computes the same division.
std::vector<ChecksumRange> shard_of(const std::vector<ChecksumRange>& all, int shard, int shards) {
  std::vector<ChecksumRange> own;
  std::uint64_t total = 0, before = 0;
  for (const ChecksumRange& one : all) total += one.end - one.begin + 1;
  for (const ChecksumRange& one : all) {
    if (static_cast<int>(static_cast<double>(before) / static_cast<double>(total) * shards) ==
        shard)
      own.push_back(one);
    before += one.end - one.begin + 1;
  }
  return own;
}

// Which tensors are where in a file, by its header as far as that can be read.
class TensorRanges {
 public:
  TensorRanges(const ReadFile& file, const FileRecord& record) {
    std::string start;
    const auto read = [&](std::uint64_t end) {
      return file.read(start.size(), end,
                       [&](std::string_view bytes) { return !start.append(bytes).empty(); });
    };
    if (!record.name.ends_with(".safetensors") || file.size() < kHeaderLength ||
        !read(kHeaderLength))
      return;
    const auto size = header_size(start, file.size());
    if (!size || !read(*size)) return;
    size_ = *size;
    if (auto header = parse_header(start, file.size())) tensors_ = std::move(header->tensors);
  }

  // " (tensor 'layers.0.weight')"; empty if it is not known.
  std::string names_in(const ChecksumRange& range) const {
    if (range.begin < size_ && range.end <= size_) return " (its header)";
    std::string name;
    for (auto tensor = std::ranges::partition_point(
             tensors_, [&](const TensorEntry& each) { return size_ + each.end <= range.begin; });
         tensor != tensors_.end() && size_ + tensor->begin < range.end; ++tensor) {
      if (tensor->begin == tensor->end) continue;
      if (!name.empty()) return formatted(" (tensor '{}' or a later one)", name);
      name = printable(tensor->name);
    }
    return name.empty() ? name : formatted(" (tensor '{}')", name);
  }

 private:
  std::uint64_t size_ = 0;            // of the header
  std::vector<TensorEntry> tensors_;  // in the order of their bytes
};

// Compares a stream of bytes with the checksums of consecutive parts.
class Comparison {
 public:
  Comparison(std::span<const ChecksumRange> parts, std::size_t max_faults)
      : parts_(parts), max_faults_(max_faults) {
    end_parts();
  }

  // False once `max_faults` parts differ.
  bool take(std::string_view bytes) {
    while (!bytes.empty() && !parts_.empty()) {
      const std::string_view own =
          bytes.substr(0, parts_.front().end - parts_.front().begin - seen_);
      checksum_->add(own);
      seen_ += own.size();
      bytes.remove_prefix(own.size());
      end_parts();
    }
    return differ_.size() < max_faults_;
  }

  const std::vector<ChecksumRange>& differ() const { return differ_; }

 private:
  // Compares and removes the parts whose bytes are complete.
  void end_parts() {
    while (!parts_.empty() && seen_ == parts_.front().end - parts_.front().begin) {
      if (checksum_->digest() != parts_.front().xxh3) differ_.push_back(parts_.front());
      parts_ = parts_.subspan(1);
      checksum_.emplace();
      seen_ = 0;
    }
  }

  std::span<const ChecksumRange> parts_;  // not complete yet
  const std::size_t max_faults_;
  std::optional<Checksum> checksum_{std::in_place};  // of the first one
  std::uint64_t seen_ = 0;                           // of its bytes
  std::vector<ChecksumRange> differ_;
};

// The first `max_faults` errors in consecutive parts of one file.
std::vector<std::string> faults_in_file(const fs::path& folder,
                                        std::span<const ChecksumRange> parts,
                                        const FileImages& kept, std::size_t max_faults) {
  const FileRecord& record = *parts.front().file;
  const auto found = kept.find(record.name);
  FileImage* const image = found == kept.end() ? nullptr : found->second.get();
  const ReadFile file(folder / record.name);
  if (file.error()) return {record.name + " " + file.error()};
  if (file.size() != record.size) {
    return {formatted("{} has {} bytes, expected {}", record.name, file.size(), record.size)};
  }
  Comparison comparison(parts, max_faults);
  const auto take = [&](std::string_view bytes) { return comparison.take(bytes); };
  const std::uint64_t begin = parts.front().begin, end = parts.back().end;
  const bool delivered =
      image ? file.read_into(*image, begin, end, take) : file.read(begin, end, take);
  std::vector<std::string> faults;
  if (!comparison.differ().empty()) {
    const TensorRanges tensors(file, record);
    for (const ChecksumRange& part : comparison.differ())
      faults.push_back(
          formatted("{} is damaged: its checksum differs{}", record.name, tensors.names_in(part)));
  }
  if (!delivered) faults.push_back(formatted("{} cannot be read", record.name));
  return faults;
}

// The first `max_faults` errors. A file that is missing or has another size is one error.
std::vector<std::string> faults(const fs::path& folder, std::span<const ChecksumRange> parts,
                                const FileImages& kept, std::size_t max_faults) {
  std::vector<std::string> found;
  while (!parts.empty() && found.size() < max_faults) {
    const FileRecord* const file = parts.front().file;
    const auto end =
        std::ranges::find_if(parts, [&](const ChecksumRange& part) { return part.file != file; });
    const auto own = parts.first(static_cast<std::size_t>(end - parts.begin()));
    for (std::string& fault : faults_in_file(folder, own, kept, max_faults - found.size())) {
      if (found.empty() || found.back() != fault) found.push_back(std::move(fault));
    }
    parts = parts.subspan(own.size());
  }
  return found;
}

}  // namespace

Result<Manifest> read_manifest(const fs::path& folder) {
  const std::string name = kManifestFile;
  const ReadFile file(folder / name);
  if (file.error()) return Error{name + " " + file.error()};
  if (file.size() > kLargestManifest)
    return Error{formatted("{} is damaged: it has {} bytes", name, file.size())};
  std::string text;
  if (!file.read(0, file.size(),
                 [&](std::string_view bytes) { return !text.append(bytes).empty(); }))
    return Error{formatted("{} cannot be read", name)};
  auto manifest = manifest_from_json(text);
  if (!manifest) return Error{name + " " + manifest.error().message};
  if (!has_valid_checksum(text))
    return Error{formatted("{} is damaged: its checksum differs", name)};
  return manifest;
}

FileImages images_for(const Manifest& manifest, const std::vector<std::string>& names) {
  FileImages images;
  for (const FileRecord& file : manifest.files) {
    if (std::ranges::count(names, file.name) == 0) continue;
    auto& image = images[file.name];
    try {
      image = std::make_shared<FileImage>(file.size);
    } catch (const std::bad_alloc&) {
      // The image stays null: the file is mapped later.
    }
  }
  return images;
}

Status verify_files(const fs::path& folder, const Manifest& manifest, int shard, int shards,
                    const FileImages& kept) {
  const std::vector<ChecksumRange> own = checksum_ranges(manifest, kept, true),
                                   all = checksum_ranges(manifest, kept, false);
  const auto fault_of_reader = [&](int reader) {
    std::vector<ChecksumRange> parts = shard_of(own, reader, kReaders);
    std::ranges::copy(shard_of(all, shard * kReaders + reader, shards * kReaders),
                      std::back_inserter(parts));
    return faults(folder, parts, kept, 1);
  };
  std::array<std::future<std::vector<std::string>>, kReaders> readers;
  for (int i = 0; i < kReaders; ++i)
    readers[i] = std::async(std::launch::async | std::launch::deferred, fault_of_reader, i);
  for (auto& reader : readers) {
    if (const auto found = reader.get(); !found.empty()) return Error{found.front()};
  }
  return Ok{};
}

std::vector<std::string> all_faults(const fs::path& folder, const Manifest& manifest) {
  return faults(folder, checksum_ranges(manifest, {}, false), {},
                std::numeric_limits<std::size_t>::max());
}

Result<Manifest> verified_manifest(const fs::path& folder) {
  auto manifest = read_manifest(folder);
  if (!manifest) return manifest;
  if (const Status good = verify_files(folder, *manifest); !good) return good.error();
  return manifest;
}

}  // namespace torchbridge::train
