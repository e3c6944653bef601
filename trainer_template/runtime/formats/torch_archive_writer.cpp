// A zip archive as PyTorch's own writer makes it: records stored, each at a multiple of 64 bytes, sizes in zip64. The
// format: PKWARE's APPNOTE.TXT, sections 4.3 and 4.5; what torch.load expects: caffe2/serialize/inline_container.h.
#include <vector>

#include <zlib.h>

#include "trainer_template/runtime/formats/pickle_writer.h"
#include "trainer_template/runtime/formats/torch_archive.h"

namespace torchbridge::train {
namespace {

constexpr std::uint64_t kAlignment = 64;
constexpr std::uint32_t kInZip64 = 0xffffffff;  // instead of a size or position of 32 bits

struct SizedInteger {
  std::uint64_t value;
  int bytes;
};

std::string little_endian(std::initializer_list<SizedInteger> numbers) {
  std::string text;
  for (const auto& [value, bytes] : numbers) {
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
  }
  return text;
}

struct Record {
  std::string name;
  std::string_view content;
  std::uint64_t begin = 0;  // of its header in the file
  std::uint32_t crc = 0;
};

// What the record's two headers have in common: from "version needed" to the length of its name. The day is the first
// that there is.
std::string common_fields(const Record& record) {
  constexpr std::uint64_t kNeededVersion = 45, kFlags = 0, kStored = 0, kTime = 0, kDay = 0x21;
  return little_endian({{kNeededVersion, 2},
                        {kFlags, 2},
                        {kStored, 2},
                        {kTime, 2},
                        {kDay, 2},
                        {record.crc, 4},
                        {kInZip64, 4},
                        {kInZip64, 4},
                        {record.name.size(), 2}});
}

std::string sizes_in_zip64(const Record& record, int more) {
  return little_endian({{1, 2}, {16u + more, 2}, {record.content.size(), 8}, {record.content.size(), 8}});
}

// Ends where the content begins.
std::string local_header(const Record& record) {
  constexpr std::uint64_t kFixed = 30, kPaddingHead = 4, kPaddingKind = 0x4246;  // "FB"
  const std::string sizes = sizes_in_zip64(record, 0);
  const std::uint64_t end = record.begin + kFixed + record.name.size() + sizes.size() + kPaddingHead;
  const std::uint64_t padding = (kAlignment - end % kAlignment) % kAlignment;
  return "PK\3\4" + common_fields(record) + little_endian({{sizes.size() + kPaddingHead + padding, 2}}) + record.name +
         sizes + little_endian({{kPaddingKind, 2}, {padding, 2}}) + std::string(padding, 'Z');
}

std::string entry_in_directory(const Record& record) {
  constexpr std::uint64_t kMadeBy = 45, kExtra = 28;
  return "PK\1\2" + little_endian({{kMadeBy, 2}}) + common_fields(record) +
         little_endian({{kExtra, 2}, {0, 2}, {0, 2}, {0, 2}, {0, 4}, {kInZip64, 4}}) + record.name +
         sizes_in_zip64(record, 8) + little_endian({{record.begin, 8}});
}

std::string end_of_directory(std::uint64_t entries, std::uint64_t size, std::uint64_t begin) {
  return "PK\6\6" +
         little_endian({{44, 8}, {45, 2}, {45, 2}, {0, 4}, {0, 4}, {entries, 8}, {entries, 8}, {size, 8}, {begin, 8}}) +
         "PK\6\7" + little_endian({{0, 4}, {begin + size, 8}, {1, 4}}) + "PK\5\6" +
         little_endian({{0, 2}, {0, 2}, {0xffff, 2}, {0xffff, 2}, {kInZip64, 4}, {kInZip64, 4}, {0, 2}});
}

}  // namespace

void write_torch_archive(FileLayer& files, const std::filesystem::path& path, const PickledValue& content,
                         const std::map<std::string, std::string_view>& storages) {
  const std::string pickle = to_pickle(content);
  std::vector<Record> records = {{"archive/data.pkl", pickle}, {"archive/byteorder", "little"}};
  for (const auto& [key, bytes] : storages) records.push_back({"archive/data/" + key, bytes});
  records.push_back({"archive/version", "3\n"});

  std::vector<std::string> headers;
  headers.reserve(records.size());
  std::uint64_t at = 0;
  std::string directory;
  for (Record& record : records) {
    record.begin = at;
    record.crc = static_cast<std::uint32_t>(
        crc32_z(0, reinterpret_cast<const Bytef*>(record.content.data()), record.content.size()));
    at += headers.emplace_back(local_header(record)).size() + record.content.size();
    directory += entry_in_directory(record);
  }
  directory += end_of_directory(records.size(), directory.size(), at);

  std::vector<std::string_view> parts;
  for (std::size_t i = 0; i < records.size(); ++i) parts.insert(parts.end(), {headers[i], records[i].content});
  parts.push_back(directory);
  files.write_synced(path, parts);
}

}  // namespace torchbridge::train
