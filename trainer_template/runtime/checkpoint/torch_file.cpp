#include <torchbridge/train/checkpoint/torch_file.h>

#include <ATen/ops/empty.h>
#include <c10/core/Storage.h>
#include <c10/core/CPUAllocator.h>
#include <torchbridge/core/env_map.h>
#include <torchbridge/train/errors.h>
#include <torchbridge/train/checkpoint/safetensors_header.h>
#include <torchbridge/train/checkpoint/scalar_types.h>
#include <zip.h>

#include <fstream>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace torchbridge::train {
namespace {

namespace fs = std::filesystem;

// PyTorch 1.6 and later.
bool is_archive(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  char start[4] = {};
  return file.read(start, sizeof start) && std::string_view(start, sizeof start) == "PK\3\4";
}

TrainError wrong(const fs::path& path, const std::string& what) { return TrainError(path.string() + " " + what); }

// The archive, without the folder that all its entries are in. libzip compares each entry's CRC-32, which torch.load does not.
class Archive {
 public:
  explicit Archive(const fs::path& path) : path_(path) {
    if (!is_archive(path)) {
      std::error_code error;
      if (!fs::is_regular_file(path, error)) throw wrong(path, "is missing or cannot be read");
      throw wrong(path, "is no archive of torch.save (PyTorch 1.6 or later): save it again with torch.save(state_dict, file)");
    }
    int code = 0;
    zip_.reset(zip_open(path.c_str(), ZIP_RDONLY, &code));
    if (!zip_) {
      zip_error_t error;
      zip_error_init_with_code(&error, code);
      const std::string text = zip_error_strerror(&error);
      zip_error_fini(&error);
      throw wrong(path, "is damaged: " + text);
    }
    for (zip_int64_t i = 0; i < zip_get_num_entries(zip_.get(), 0); ++i) {
      const char* name = zip_get_name(zip_.get(), static_cast<zip_uint64_t>(i), ZIP_FL_ENC_RAW);
      const std::string_view entry = name ? name : "";
      const auto slash = entry.find('/');
      if (slash != std::string_view::npos && entry.substr(slash) == "/data.pkl") folder_ = entry.substr(0, slash + 1);
    }
    if (folder_.empty()) throw wrong(path, "is a zip archive without data.pkl: torch.save did not write it");
  }

  bool has(const std::string& name) const { return locate(name) >= 0; }

  // Not more than `limit` bytes.
  std::uint64_t size_of(const std::string& name, std::uint64_t limit) const {
    zip_stat_t found{};
    const auto index = locate(name);
    if (index < 0) throw wrong(path_, "has no record '" + printable(name) + "'");
    const bool known = zip_stat_index(zip_.get(), static_cast<zip_uint64_t>(index), 0, &found) == 0 && (found.valid & ZIP_STAT_SIZE) != 0;
    if (!known) throw wrong(path_, "does not tell the size of its record '" + printable(name) + "'");
    if (found.size > limit) throw wrong(path_, "has a record '" + printable(name) + "' of " + std::to_string(found.size) + " bytes, more than " + std::to_string(limit));
    return found.size;
  }

  // All of it. REQUIRES: `size` is size_of(name).
  void read(const std::string& name, void* into, std::uint64_t size) const {
    const std::unique_ptr<zip_file_t, int (*)(zip_file_t*)> file(zip_fopen_index(zip_.get(), static_cast<zip_uint64_t>(locate(name)), 0), zip_fclose);
    if (!file) throw wrong(path_, "is damaged: record '" + printable(name) + "': " + zip_strerror(zip_.get()));
    auto* at = static_cast<char*>(into);
    // The checksum is compared by the read that finds the end.
    for (char beyond = 0; true;) {
      const auto count = size == 0 ? zip_fread(file.get(), &beyond, 1) : zip_fread(file.get(), at, size);
      if (count < 0) throw wrong(path_, "is damaged: record '" + printable(name) + "': " + zip_file_strerror(file.get()));
      if (count == 0 && size == 0) return;
      if (count == 0 || size == 0) throw wrong(path_, "is damaged: record '" + printable(name) + "' is not as long as it says");
      at += count;
      size -= static_cast<std::uint64_t>(count);
    }
  }

  std::string text(const std::string& name, std::uint64_t limit) const {
    std::string content(size_of(name, limit), '\0');
    read(name, content.data(), content.size());
    return content;
  }

 private:
  zip_int64_t locate(const std::string& name) const { return zip_name_locate(zip_.get(), (folder_ + name).c_str(), ZIP_FL_ENC_RAW); }

  const fs::path& path_;
  std::unique_ptr<zip_t, void (*)(zip_t*)> zip_{nullptr, zip_discard};
  std::string folder_;
};

class Storages {
 public:
  Storages(const fs::path& path, const Archive& archive) : path_(path), archive_(archive) {}

  at::Tensor tensor(const PickledTensor& at) {
    auto found = storages_.find(at.storage);
    if (found == storages_.end()) found = storages_.emplace(at.storage, read(at)).first;
    const c10::Storage& storage = found->second;
    if (storage.nbytes() < bytes_of(at)) throw wrong(path_, "has a tensor that reaches beyond its storage '" + printable(at.storage) + "'");
    at::Tensor tensor = at::empty({0}, at::TensorOptions(scalar_type_of(at.dtype)));
    tensor.set_(storage, at.offset, at.shape, at.strides);
    return tensor;
  }

 private:
  static std::size_t bytes_of(const PickledTensor& at) { return static_cast<std::size_t>(at.storage_size) * element_size(at.dtype); }

  c10::Storage read(const PickledTensor& at) {
    const std::string record = "data/" + at.storage;
    const std::uint64_t expected = bytes_of(at), size = archive_.size_of(record, expected);
    if (size != expected) {
      throw wrong(path_, "has " + std::to_string(size) + " bytes in its record '" + printable(record) + "', but by its pickle there are " + std::to_string(expected));
    }
    c10::Storage storage(c10::Storage::use_byte_size_t(), static_cast<std::int64_t>(size), c10::GetCPUAllocator(), false);
    archive_.read(record, storage.mutable_data(), size);
    return storage;
  }

  const fs::path& path_;
  const Archive& archive_;
  std::unordered_map<std::string, c10::Storage> storages_;
};

bool is_state_dict(const PickledValue& value) {
  if (!value.is(PickledValue::Kind::kDict)) return false;
  for (std::size_t i = 0; i < value.items.size(); i += 2) {
    if (!value.items[i]->is(PickledValue::Kind::kText) || !value.items[i + 1]->is(PickledValue::Kind::kTensor)) return false;
  }
  return true;
}

std::string keys_of(const PickledValue& dict) {
  constexpr std::size_t kShown = 8;
  std::string text;
  for (std::size_t i = 0; i < dict.items.size() && i < 2 * kShown; i += 2) {
    const auto& key = *dict.items[i];
    text += (text.empty() ? "'" : ", '") + (key.is(PickledValue::Kind::kText) ? printable(key.text) : std::to_string(key.integer)) + "'";
  }
  return dict.items.size() > 2 * kShown ? text + ", ..." : text;
}

void strip_prefix(NamedTensors& tensors, std::string_view prefix) {
  for (const auto& [name, tensor] : tensors) {
    if (!name.starts_with(prefix)) return;
  }
  for (auto& [name, tensor] : tensors) name.erase(0, prefix.size());
}

}  // namespace

bool is_torch_file(const fs::path& path) { return path.extension() == ".pt" || path.extension() == ".pth" || is_archive(path); }

Pickled read_torch_file(const fs::path& path) {
  constexpr std::uint64_t kLargestPickle = std::uint64_t{64} << 20, kLargestWord = 16;
  const Archive archive(path);
  if (archive.has("byteorder") && archive.text("byteorder", kLargestWord) != "little") throw wrong(path, "was written on a big-endian machine");
  auto content = parse_pickle(archive.text("data.pkl", kLargestPickle));
  if (!content) throw wrong(path, "cannot be read: " + content.error().message);
  return *std::move(content);
}

NamedTensors read_tensors(const fs::path& path, const PickledValue& dict) {
  const Archive archive(path);
  Storages storages(path, archive);
  NamedTensors tensors;
  std::unordered_set<std::string_view> names;
  for (std::size_t i = 0; i < dict.items.size(); i += 2) {
    const PickledValue &key = *dict.items[i], &value = *dict.items[i + 1];
    if (!key.is(PickledValue::Kind::kText)) throw wrong(path, "has a tensor under the number " + std::to_string(key.integer) + " instead of a name");
    if (!value.is(PickledValue::Kind::kTensor)) throw wrong(path, "has '" + printable(key.text) + "', which is no tensor");
    if (!names.insert(key.text).second) throw wrong(path, "has '" + printable(key.text) + "' twice");
    tensors.emplace_back(key.text, storages.tensor(value.tensor));
  }
  return tensors;
}

NamedTensors read_state_dict(const fs::path& path) {
  const Pickled content = read_torch_file(path);
  const PickledValue* dict = is_state_dict(*content) ? content.get() : nullptr;
  for (const char* key : {"model", "state_dict", "model_state_dict"}) {
    const PickledValue* found = content->find(key);
    if (dict == nullptr && found != nullptr && is_state_dict(*found)) dict = found;
  }
  if (dict == nullptr) {
    if (!content->is(PickledValue::Kind::kDict)) throw wrong(path, "holds no state_dict: save model.state_dict(), not the model");
    throw wrong(path, "holds no state_dict, nor one as 'model', 'state_dict' or 'model_state_dict'; it has " + keys_of(*content));
  }
  NamedTensors tensors = read_tensors(path, *dict);
  strip_prefix(tensors, "module.");
  return tensors;
}

}  // namespace torchbridge::train
