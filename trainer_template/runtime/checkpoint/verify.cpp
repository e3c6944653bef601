#include <torchbridge/train/checkpoint/verify.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <torchbridge/core/env_map.h>
#include <torchbridge/train/checkpoint/checkpoint_files.h>
#include <torchbridge/train/checkpoint/checksum.h>
#include <torchbridge/train/checkpoint/safetensors_header.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <future>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace torchbridge::train {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kBlock = 1 << 20, kHeaderLength = 8;
constexpr int kReaders = 4;  // of each rank: while one computes, the others keep the disk busy
constexpr std::uint64_t kLargestManifest = 256 << 20;

// A regular file, open for reading. It is read, not mapped: a block that the disk cannot deliver is then an error, and no SIGBUS.
class ReadFile {
 public:
  explicit ReadFile(const fs::path& path) : descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)) {
    struct stat status {};
    if (descriptor_ < 0) {
      refusal_ = errno == ELOOP ? "is a link, which is not followed" : "is missing or cannot be read";
    } else if (fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
      refusal_ = "is no file";
    }
    size_ = static_cast<std::uint64_t>(status.st_size);
  }
  ~ReadFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  ReadFile(const ReadFile&) = delete;
  ReadFile& operator=(const ReadFile&) = delete;

  const char* refusal() const { return refusal_; }  // null: it can be read
  std::uint64_t size() const { return size_; }

  // Calls take(bytes) block by block. False where the disk does not deliver [begin, end).
  template <class Take>
  bool read(std::uint64_t begin, std::uint64_t end, Take&& take) const {
    std::vector<char> block(std::min(kBlock, end - begin));
    while (begin < end) {
      const ssize_t count = pread(descriptor_, block.data(), std::min<std::uint64_t>(block.size(), end - begin), static_cast<off_t>(begin));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      take(std::string_view(block.data(), static_cast<std::size_t>(count)));
      begin += static_cast<std::uint64_t>(count);
    }
    return true;
  }

 private:
  int descriptor_;
  const char* refusal_ = nullptr;
  std::uint64_t size_ = 0;
};

// What one checksum is about: bytes [begin, end) of a file.
struct Checked {
  const FileRecord* file = nullptr;
  std::uint64_t begin = 0, end = 0;
  std::string_view xxh3;
};

// In the order of the files and their bytes.
std::vector<Checked> everything(const Manifest& manifest) {
  std::vector<Checked> all;
  for (const FileRecord& file : manifest.files) {
    std::uint64_t begin = 0;
    for (const FilePart& part : file.parts) {
      all.push_back({&file, begin, begin + part.size, part.xxh3});
      begin += part.size;
    }
    if (file.parts.empty()) all.push_back({&file, 0, file.size, file.xxh3});
  }
  return all;
}

// About as many bytes for each reader, one behind the other as the disk has them. All ranks come to the same.
std::vector<Checked> share_of(const Manifest& manifest, int share, int shares) {
  std::vector<Checked> all = everything(manifest), own;
  std::uint64_t total = 0, before = 0;
  for (const Checked& one : all) total += one.end - one.begin + 1;
  for (const Checked& one : all) {
    if (static_cast<int>(static_cast<double>(before) / static_cast<double>(total) * shares) == share) own.push_back(one);
    before += one.end - one.begin + 1;
  }
  return own;
}

// Which tensors lie in the range, by the file's own header: " (tensor 'layers.0.weight')". Empty where it has none that can be read.
std::string tensors_in(const ReadFile& file, const Checked& range) {
  std::string start;
  const auto read = [&](std::uint64_t end) { return file.read(start.size(), end, [&](std::string_view bytes) { start += bytes; }); };
  if (!range.file->name.ends_with(".safetensors") || file.size() < kHeaderLength || !read(kHeaderLength)) return {};
  const auto size = header_size(start, file.size());
  if (!size || !read(*size)) return {};
  if (range.begin < *size && range.end <= *size) return " (its header)";
  const auto header = parse_header(start, file.size());
  if (!header) return {};
  std::string names;
  for (const TensorEntry& tensor : header->tensors) {
    if (tensor.begin == tensor.end || *size + tensor.end <= range.begin || *size + tensor.begin >= range.end) continue;
    if (!names.empty()) return " (tensor '" + names + "' or behind it)";
    names = printable(tensor.name);
  }
  return names.empty() ? names : " (tensor '" + names + "')";
}

Status verify(const ReadFile& file, const Checked& expected) {
  const std::string& name = expected.file->name;
  if (file.refusal()) return Error{name + " " + file.refusal()};
  if (file.size() != expected.file->size) {
    return Error{name + " has " + std::to_string(file.size()) + " bytes, " + std::to_string(expected.file->size) + " were written"};
  }
  Checksum checksum;
  if (!file.read(expected.begin, expected.end, [&](std::string_view bytes) { checksum.add(bytes); })) return Error{name + " cannot be read"};
  if (checksum.digest() != expected.xxh3) return Error{name + " is damaged: its checksum differs" + tensors_in(file, expected)};
  return Ok{};
}

// The first `most` of them. A file that is missing or of another size is one.
std::vector<std::string> faults(const fs::path& folder, const Manifest& manifest, int share, int shares, std::size_t most) {
  std::vector<std::string> found;
  std::unique_ptr<ReadFile> file;
  const FileRecord* open_file = nullptr;
  for (const Checked& one : share_of(manifest, share, shares)) {
    if (one.file != open_file) file = std::make_unique<ReadFile>(folder / one.file->name);
    open_file = one.file;
    const Status good = verify(*file, one);
    if (good || (!found.empty() && found.back() == good.error().message)) continue;
    found.push_back(good.error().message);
    if (found.size() == most) break;
  }
  return found;
}

}  // namespace

Result<Manifest> read_manifest(const fs::path& folder) {
  const std::string name = kManifestFile;
  const ReadFile file(folder / name);
  if (file.refusal()) return Error{name + " " + file.refusal()};
  if (file.size() > kLargestManifest) return Error{name + " is damaged: it has " + std::to_string(file.size()) + " bytes"};
  std::string text;
  if (!file.read(0, file.size(), [&](std::string_view bytes) { text += bytes; })) return Error{name + " cannot be read"};
  auto manifest = manifest_from_json(text);
  if (!manifest) return Error{name + " " + manifest.error().message};
  if (!is_sealed(text)) return Error{name + " is damaged: its checksum differs"};
  return manifest;
}

Status verify_files(const fs::path& folder, const Manifest& manifest, int share, int shares) {
  const auto fault_of_part = [&](int part) { return faults(folder, manifest, share * kReaders + part, shares * kReaders, 1); };
  std::array<std::future<std::vector<std::string>>, kReaders> parts;
  for (int part = 0; part < kReaders; ++part) parts[part] = std::async(std::launch::async | std::launch::deferred, fault_of_part, part);
  for (auto& part : parts) {
    if (const auto found = part.get(); !found.empty()) return Error{found.front()};
  }
  return Ok{};
}

std::vector<std::string> all_faults(const fs::path& folder, const Manifest& manifest) {
  return faults(folder, manifest, 0, 1, std::numeric_limits<std::size_t>::max());
}

Result<Manifest> verified_manifest(const fs::path& folder) {
  auto manifest = read_manifest(folder);
  if (!manifest) return manifest;
  if (const Status good = verify_files(folder, *manifest); !good) return good.error();
  return manifest;
}

}  // namespace torchbridge::train
