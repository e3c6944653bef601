#include "trainer_template/runtime/formats/torch_archive.h"

#include <algorithm>

#include <zip.h>

#include "bridge/base/env_map.h"
#include "trainer_template/runtime/base/errors.h"
#include "trainer_template/runtime/base/mapped_file.h"
#include "trainer_template/runtime/formats/safetensors_header.h"

namespace torchbridge::train {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLargestPickle = std::uint64_t{64} << 20, kLargestByteOrder = 16;

// Whether the file begins like a zip archive, which torch.save writes since PyTorch 1.6. Throws for anything but a
// regular file: libzip would block on a pipe.
bool is_archive(const fs::path& path) {
  constexpr std::uint8_t kStart[] = {'P', 'K', 3, 4};
  const MappedFile file(path);
  return file.bytes().size() >= sizeof kStart && std::ranges::equal(file.bytes().first(sizeof kStart), kStart);
}

TrainError archive_error(const fs::path& path, const std::string& what) {
  return TrainError(path.string() + " " + what);
}

std::string record_of(const PickledTensor& tensor) { return "data/" + tensor.storage; }

}  // namespace

// The archive, without the folder that all its entries are in.
struct TorchArchive::Zip {
  explicit Zip(const fs::path& file) : path(file) {
    int code = 0;
    zip.reset(zip_open(path.c_str(), ZIP_RDONLY, &code));
    if (!zip) {
      zip_error_t error;
      zip_error_init_with_code(&error, code);
      const std::string text = zip_error_strerror(&error);
      zip_error_fini(&error);
      throw archive_error(path, "is damaged: " + text);
    }
    for (zip_int64_t i = 0; i < zip_get_num_entries(zip.get(), 0); ++i) {
      const char* name = zip_get_name(zip.get(), static_cast<zip_uint64_t>(i), ZIP_FL_ENC_RAW);
      const std::string_view entry = name ? name : "";
      const auto slash = entry.find('/');
      if (slash != std::string_view::npos && entry.substr(slash) == "/data.pkl") folder = entry.substr(0, slash + 1);
    }
    if (folder.empty()) throw archive_error(path, "is a zip archive without data.pkl: torch.save did not write it");
  }

  zip_int64_t locate(const std::string& name) const {
    return zip_name_locate(zip.get(), (folder + name).c_str(), ZIP_FL_ENC_RAW);
  }

  // Not more than `limit` bytes.
  std::uint64_t size_of(const std::string& name, std::uint64_t limit) const {
    zip_stat_t found{};
    const auto index = locate(name);
    if (index < 0) throw archive_error(path, "has no record '" + printable(name) + "'");
    const bool known = zip_stat_index(zip.get(), static_cast<zip_uint64_t>(index), 0, &found) == 0 &&
                       (found.valid & ZIP_STAT_SIZE) != 0;
    if (!known) throw archive_error(path, "has no size for its record '" + printable(name) + "'");
    if (found.size > limit) {
      throw archive_error(path, "has a record '" + printable(name) + "' of " + std::to_string(found.size) +
                                    " bytes, more than " + std::to_string(limit));
    }
    return found.size;
  }

  // All of it. REQUIRES: `size` is size_of(name).
  void read(const std::string& name, void* into, std::uint64_t size) const {
    const std::unique_ptr<zip_file_t, int (*)(zip_file_t*)> file(
        zip_fopen_index(zip.get(), static_cast<zip_uint64_t>(locate(name)), 0), zip_fclose);
    if (!file) throw archive_error(path, "is damaged: record '" + printable(name) + "': " + zip_strerror(zip.get()));
    auto* at = static_cast<char*>(into);
    // libzip compares the CRC in the read that reaches the end, so one more byte is requested.
    for (char extra = 0; true;) {
      const auto count = size == 0 ? zip_fread(file.get(), &extra, 1) : zip_fread(file.get(), at, size);
      if (count < 0)
        throw archive_error(path, "is damaged: record '" + printable(name) + "': " + zip_file_strerror(file.get()));
      if (count == 0 && size == 0) return;
      if (count == 0 || size == 0)
        throw archive_error(path, "is damaged: record '" + printable(name) +
                                      "' has another length than the archive's directory declares");
      at += count;
      size -= static_cast<std::uint64_t>(count);
    }
  }

  std::string text(const std::string& name, std::uint64_t limit) const {
    std::string content(size_of(name, limit), '\0');
    read(name, content.data(), content.size());
    return content;
  }

  const fs::path& path;
  std::unique_ptr<zip_t, void (*)(zip_t*)> zip{nullptr, zip_discard};
  std::string folder;
};

bool is_torch_file(const fs::path& path) {
  return path.extension() == ".pt" || path.extension() == ".pth" || is_archive(path);
}

TorchArchive::TorchArchive(const fs::path& path) : path_(path) {
  if (!is_archive(path_))
    throw archive_error(
        path_, "is not a torch.save archive (PyTorch 1.6 or later): save it again with torch.save(state_dict, file)");
  zip_ = std::make_unique<Zip>(path_);
}

TorchArchive::~TorchArchive() = default;

Pickled TorchArchive::content() const {
  if (zip_->locate("byteorder") >= 0 && zip_->text("byteorder", kLargestByteOrder) != "little")
    throw archive_error(path_, "was written on a big-endian machine");
  auto content = parse_pickle(zip_->text("data.pkl", kLargestPickle));
  if (!content) throw archive_error(path_, "cannot be read: " + content.error().message);
  return *std::move(content);
}

std::uint64_t TorchArchive::storage_bytes(const PickledTensor& tensor) const {
  const std::uint64_t expected = static_cast<std::uint64_t>(tensor.storage_size) * element_size(tensor.dtype);
  const std::uint64_t size = zip_->size_of(record_of(tensor), expected);
  if (size == expected) return size;
  throw archive_error(path_, "has " + std::to_string(size) + " bytes in its record '" + printable(record_of(tensor)) +
                                 "', but its pickle declares " + std::to_string(expected));
}

void TorchArchive::read_storage(const PickledTensor& tensor, void* into) const {
  zip_->read(record_of(tensor), into, storage_bytes(tensor));
}

}  // namespace torchbridge::train
