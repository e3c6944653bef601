#include "trainer_template/ckpt/to_torch.h"

#include <cstdio>
#include <memory>

#include "trainer_template/ckpt/tensor_bytes.h"
#include "trainer_template/runtime/base/errors.h"
#include "trainer_template/runtime/checkpoint_format/checkpoint_files.h"
#include "trainer_template/runtime/checkpoint_format/verify.h"
#include "trainer_template/runtime/formats/pickle_writer.h"
#include "trainer_template/runtime/formats/python_optimizer.h"
#include "trainer_template/runtime/formats/safetensors_file.h"
#include "trainer_template/runtime/formats/torch_archive.h"

using namespace torchbridge::train;
namespace fs = std::filesystem;

namespace {

// Storages by their names in the archive. The bytes are not owned.
class ArchiveStorages {
 public:
  Pickled add(const TensorBytes& tensor) {
    const std::string key = std::to_string(by_key_.size());
    by_key_[key] = tensor.bytes;
    return pickled::tensor(key, tensor.dtype, tensor.shape);
  }
  const std::map<std::string, std::string_view>& all() const { return by_key_; }

 private:
  std::map<std::string, std::string_view> by_key_;
};

Pickled state_dict(const SafetensorsFile& file, ArchiveStorages& storages) {
  std::map<std::string, Pickled> tensors;
  std::vector<std::pair<Pickled, Pickled>> entries;
  for (const TensorEntry& entry : file.header().tensors) {
    const Pickled tensor = storages.add({entry.name, entry.dtype, entry.shape, file.bytes(entry)});
    tensors.emplace(entry.name, tensor);
    entries.emplace_back(pickled::text(entry.name), tensor);
  }
  for (const auto& [name, first] : file.header().metadata) {  // of tied weights: one storage under two names
    const auto tied = tensors.find(first);
    if (tied != tensors.end() && !tensors.contains(name)) entries.emplace_back(pickled::text(name), tied->second);
  }
  return pickled::dict(entries);
}

// The optimizer's state of all ranks, joined to whole tensors.
class OptimizerState {
 public:
  void add(const fs::path& path) {
    files_.push_back(std::make_unique<SafetensorsFile>(path, Links::kRejected));
    for (const TensorEntry& entry : files_.back()->header().tensors) {
      const auto [found, fresh] = pieces_.try_emplace(entry.name);
      if (fresh) order_.push_back(entry.name);
      if (fresh || !entry.shape.empty())
        found->second.push_back({entry.name, entry.dtype, entry.shape, files_.back()->bytes(entry)});
    }
  }

  // Joins flat pieces and gives them the shape of their parameter.
  std::vector<std::pair<std::string, Pickled>> whole(const SafetensorsFile& model, ArchiveStorages& storages) {
    std::map<std::string, std::vector<std::int64_t>> shapes;
    for (const TensorEntry& entry : model.header().tensors) shapes[entry.name] = entry.shape;
    std::vector<std::pair<std::string, Pickled>> state;
    for (const std::string& name : order_) {
      const auto& pieces = pieces_.at(name);
      TensorBytes tensor = pieces.front();
      if (pieces.size() > 1) tensor.bytes = joined(pieces);
      const auto shape = shapes.find(name.substr(0, name.rfind('.')));
      if (!tensor.shape.empty() && shape != shapes.end()) tensor.shape = shape->second;
      check_size(tensor);
      state.emplace_back(name, storages.add(tensor));
    }
    return state;
  }

 private:
  std::string_view joined(const std::vector<TensorBytes>& pieces) {
    auto& bytes = joined_.emplace_back(std::make_unique<std::string>());
    for (const TensorBytes& piece : pieces) bytes->append(piece.bytes);
    return *bytes;
  }

  static void check_size(const TensorBytes& tensor) {
    std::uint64_t size = element_size(tensor.dtype);
    for (const std::int64_t length : tensor.shape) size *= static_cast<std::uint64_t>(length);
    if (size != tensor.bytes.size())
      throw TrainError("the optimizer's '" + tensor.name + "' has another number of elements than its parameter");
  }

  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<std::string> order_;
  std::map<std::string, std::vector<TensorBytes>> pieces_;
  std::vector<std::unique_ptr<std::string>> joined_;
};

Pickled progress(const Manifest& manifest, const char* key) {
  const std::map<std::string, std::int64_t> values = {{"step", manifest.state.step},
                                                      {"epoch", manifest.state.position.epoch},
                                                      {"epoch_samples_consumed", manifest.state.position.consumed},
                                                      {"samples_seen", manifest.state.samples_seen}};
  return pickled::integer(values.at(key));
}

void convert_checkpoint(const fs::path& from, const fs::path& to) {
  const auto manifest = verified_manifest(from);
  if (!manifest) throw TrainError(from.string() + ": " + manifest.error().message);
  const SafetensorsFile model(from / kModelFile, Links::kRejected);
  ArchiveStorages storages;
  std::vector<std::pair<Pickled, Pickled>> entries = {{pickled::text("model"), state_dict(model, storages)}};
  OptimizerState optimizer;
  for (const FileRecord& file : manifest->files) {
    if (is_optimizer_file(file.name)) optimizer.add(from / file.name);
  }
  if (manifest->optimizer.groups.empty()) {
    std::fprintf(
        stderr,
        "torchbridge-ckpt: the manifest of %s lists no parameter groups: the optimizer's state is not converted\n",
        from.c_str());
  } else {
    entries.emplace_back(pickled::text("optimizer"),
                         python_optimizer(manifest->optimizer, optimizer.whole(model, storages)));
  }
  for (const char* key : {"step", "epoch", "epoch_samples_consumed", "samples_seen"}) {
    entries.emplace_back(pickled::text(key), progress(*manifest, key));
  }
  write_torch_archive(real_files(), to, *pickled::dict(entries), storages.all());
}

}  // namespace

void convert_to_torch(const fs::path& from, const fs::path& to) {
  std::error_code ignored;
  if (fs::is_directory(from, ignored)) return convert_checkpoint(from, to);
  const SafetensorsFile file(from);
  ArchiveStorages storages;
  const Pickled weights = state_dict(file, storages);
  write_torch_archive(real_files(), to, *weights, storages.all());
}
