#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <torchbridge/errors.h>
#include <torchbridge/formats.h>
#include <zlib.h>

#include "bridge/base/message_text.h"

namespace torchbridge::train {
namespace {

namespace fs = std::filesystem;

// No data set that is read into memory is larger; a header that declares more is damaged.
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 36;

struct IdxFile {
  std::vector<std::uint64_t> sizes;  // one a dimension
  std::vector<std::uint8_t> bytes;
};

struct CloseGz {
  void operator()(gzFile file) const { gzclose(file); }
};

[[noreturn]] void fail(const fs::path& path, const std::string& reason) {
  throw TrainError(path.string() + ": " + reason);
}

std::optional<fs::path> find_file(const fs::path& folder, const std::string& split,
                                  const std::string& what, const std::string& type) {
  for (const char* separator : {"-", "."}) {
    for (const char* ending : {"", ".gz"}) {
      fs::path path = folder / (split + "-" + what + separator + type + ending);
      std::error_code ignored;
      // Some copies have a folder of that name beside the file, whose name has a dot: Kaggle's.
      if (fs::exists(path, ignored) && !fs::is_directory(path, ignored)) return path;
    }
  }
  return std::nullopt;
}

fs::path required_file(const fs::path& folder, const std::string& split, const std::string& what,
                       const std::string& type) {
  std::error_code ignored;
  const std::string name = split + "-" + what + "-" + type;
  if (!fs::is_directory(folder, ignored)) {
    throw TrainError(
        formatted("data folder '{}' {}; expected a folder with {} (--data)", folder.string(),
                  fs::exists(folder, ignored) ? "is not a folder" : "does not exist", name));
  }
  if (auto path = find_file(folder, split, what, type)) return *path;
  throw TrainError(
      formatted("data folder '{}' has no {}, plain or .gz (--data)", folder.string(), name));
}

// zlib reads plain files through gzread as well.
class IdxReader {
 public:
  explicit IdxReader(const fs::path& path) : path_(path), file_(gzopen(path.c_str(), "rb")) {
    if (!file_) fail(path, "cannot be opened");
    gzbuffer(file_.get(), 1 << 17);
  }

  // Fewer bytes than asked for only at the end of the file.
  std::size_t read(std::span<std::uint8_t> into) {
    std::size_t done = 0;
    while (done < into.size()) {
      const auto wanted = std::min<std::size_t>(into.size() - done, 1 << 24);
      const int got = gzread(file_.get(), into.data() + done, static_cast<unsigned>(wanted));
      int code = Z_OK;
      const char* const reason = got > 0 ? "" : gzerror(file_.get(), &code);
      if (code == Z_BUF_ERROR) fail(path_, "is cut: its compressed data has no end");
      if (got < 0) fail(path_, formatted("cannot be read: {}", reason));
      if (got == 0) break;
      done += got;
    }
    return done;
  }

 private:
  fs::path path_;
  std::unique_ptr<gzFile_s, CloseGz> file_;
};

std::uint32_t big_endian(const std::uint8_t* bytes) {
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 |
         std::uint32_t{bytes[2]} << 8 | bytes[3];
}

IdxFile read_idx(const fs::path& path, int dimensions) {
  IdxReader reader(path);
  std::array<std::uint8_t, 16> header{};
  const std::size_t header_size = 4 + 4 * dimensions;
  if (reader.read(std::span(header).first(header_size)) < header_size)
    fail(path, "ends within its header");
  const std::uint32_t magic = 0x0800u + dimensions;
  if (header[0] == '<')
    fail(path, "is no IDX file: it begins as an HTML page does; download it again");
  if (big_endian(header.data()) != magic) {
    fail(path,
         formatted("is not an IDX file of bytes with {} dimensions: magic number {}, expected {}",
                   dimensions, big_endian(header.data()), magic));
  }

  IdxFile file;
  std::uint64_t total = 1;
  for (int i = 0; i < dimensions; ++i) {
    const std::uint32_t size = big_endian(header.data() + 4 + 4 * i);
    if (size == 0) fail(path, "has a dimension of size 0 in its header");
    if (total > kMaxBytes / size)
      fail(path, "has a header for more than 64 GiB of data: the header is damaged");
    total *= size;
    file.sizes.push_back(size);
  }

  // The buffer grows with the bytes read: a damaged header must not make it allocate the declared
  // size.
  while (file.bytes.size() < total) {
    const std::size_t before = file.bytes.size();
    const std::size_t wanted =
        std::min<std::uint64_t>(total - before, std::max<std::uint64_t>(before, 1 << 20));
    file.bytes.resize(before + wanted);
    const std::size_t got = reader.read(std::span(file.bytes).subspan(before));
    if (got < wanted) {
      fail(path, formatted("ends after {} of the {} bytes that its header declares", before + got,
                           total));
    }
  }
  std::array<std::uint8_t, 1> extra{};
  if (reader.read(extra) != 0)
    fail(path, formatted("is longer than the {} bytes that its header declares", total));
  return file;
}

}  // namespace

IdxImages read_idx_images(const fs::path& folder, std::string_view split) {
  const fs::path image_path = required_file(folder, std::string(split), "images", "idx3-ubyte");
  const fs::path label_path = required_file(folder, std::string(split), "labels", "idx1-ubyte");
  IdxFile images = read_idx(image_path, 3);
  IdxFile labels = read_idx(label_path, 1);
  if (images.sizes[0] != labels.sizes[0]) {
    fail(label_path, formatted("has {} labels for {} images in {}", labels.sizes[0],
                               images.sizes[0], image_path.filename().string()));
  }
  IdxImages data;
  data.count = images.sizes[0];
  data.rows = images.sizes[1];
  data.columns = images.sizes[2];
  data.classes = 1 + *std::max_element(labels.bytes.begin(), labels.bytes.end());
  data.pixels = std::move(images.bytes);
  data.labels = std::move(labels.bytes);
  return data;
}

}  // namespace torchbridge::train
