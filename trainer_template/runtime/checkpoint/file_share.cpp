#include <torchbridge/train/checkpoint/file_share.h>

#include <torchbridge/train/checkpoint/checksum.h>
#include <torchbridge/train/errors.h>

#include <algorithm>
#include <memory>
#include <sstream>
#include <tuple>

namespace torchbridge::train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kUnit = 1 << 20;        // of ranges
constexpr std::size_t kBlock = std::size_t{4} << 20;  // still in the processor's cache when it is written after its checksum

// Keeps the mean rate of a save below a limit.
class Pacer {
 public:
  explicit Pacer(const WritePace& pace) : pace_(pace) {}
  void wrote(std::size_t bytes) {
    bytes_ += static_cast<double>(bytes);
    if (!pace_.wait) return;
    const auto due = pace_.bytes_per_s > 0 ? begin_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(bytes_ / pace_.bytes_per_s)) : begin_;
    pace_.wait(std::max(due - Clock::now(), Clock::duration::zero()));
  }

 private:
  const WritePace& pace_;
  const Clock::time_point begin_ = Clock::now();
  double bytes_ = 0;
};

ShareRecord write_share(FileLayer& files, const std::filesystem::path& folder, const FileShare& share, Pacer& pacer) {
  const bool whole = share.range == ByteRange{0, share.file_size};
  ShareRecord record{.file = {.name = share.name, .size = share.file_size}, .begin = share.range.begin};
  const auto file = files.open(folder / share.name, whole ? FileLayer::Owner::kOne : FileLayer::Owner::kSeveral);
  Checksum all;
  std::uint64_t offset = share.range.begin;
  for (const std::string_view piece : share.pieces) {
    Checksum own;
    for (std::size_t begin = 0; begin < piece.size(); begin += kBlock) {
      const std::string_view block = piece.substr(begin, kBlock);
      own.add(block);
      if (whole) all.add(block);
      file->write_at(offset, block);
      offset += block.size();
      pacer.wrote(block.size());
    }
    record.file.parts.push_back({.size = piece.size(), .xxh3 = own.digest()});
  }
  file->sync();
  file->close();
  if (whole) record.file.xxh3 = all.digest();
  return record;
}

}  // namespace

ByteRange range_of_writer(std::uint64_t size, int index, int count) {
  const std::uint64_t units = (size + kUnit - 1) / kUnit;
  const std::uint64_t share = (units + count - 1) / count * kUnit;
  return {std::min(size, share * index), std::min(size, share * (index + 1))};
}

std::vector<ShareRecord> write_shares(FileLayer& files, const std::filesystem::path& folder, const std::vector<FileShare>& shares,
                                      const WritePace& pace) {
  std::vector<ShareRecord> records;
  Pacer pacer(pace);
  files.make_folder(folder);
  for (const FileShare& share : shares) {
    if (share.range.size() > 0) records.push_back(write_share(files, folder, share, pacer));
  }
  return records;
}

std::string to_text(const std::vector<ShareRecord>& records) {
  std::ostringstream text;
  for (const auto& [file, begin] : records) {
    text << file.name << ' ' << file.size << ' ' << begin << ' ' << (file.xxh3.empty() ? "-" : file.xxh3) << ' ' << file.parts.size() << '\n';
    for (const FilePart& part : file.parts) text << part.size << ' ' << part.xxh3 << '\n';
  }
  return text.str();
}

std::vector<ShareRecord> records_from(const std::string& text) {
  std::vector<ShareRecord> records;
  std::istringstream words(text);
  ShareRecord record;
  for (std::size_t parts = 0; words >> record.file.name >> record.file.size >> record.begin >> record.file.xxh3 >> parts;) {
    if (record.file.xxh3 == "-") record.file.xxh3.clear();
    record.file.parts.resize(parts);
    for (FilePart& part : record.file.parts) words >> part.size >> part.xxh3;
    records.push_back(record);
  }
  return records;
}

std::vector<FileRecord> joined(std::vector<ShareRecord> records) {
  std::sort(records.begin(), records.end(), [](const ShareRecord& a, const ShareRecord& b) {
    return std::tie(a.file.name, a.begin) < std::tie(b.file.name, b.begin);
  });
  std::vector<FileRecord> files;
  std::uint64_t end = 0;  // of what is known of the last file
  const auto check_complete = [&] {
    if (!files.empty() && end != files.back().size) throw TrainError(files.back().name + " was not written as a whole");
  };
  for (ShareRecord& record : records) {
    if (files.empty() || files.back().name != record.file.name) {
      check_complete();
      files.push_back({.name = record.file.name, .size = record.file.size, .xxh3 = record.file.xxh3});
      end = 0;
    }
    if (record.begin != end || record.file.size != files.back().size) {
      throw TrainError(record.file.name + ": what the ranks have written does not fit together; do all have the same model?");
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
