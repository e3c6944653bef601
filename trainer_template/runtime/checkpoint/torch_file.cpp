#include "trainer_template/runtime/checkpoint/torch_file.h"

#include <unordered_map>
#include <unordered_set>

#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/Storage.h>

#include "bridge/base/env_map.h"
#include "trainer_template/runtime/base/errors.h"
#include "trainer_template/runtime/formats/safetensors_header.h"
#include "trainer_template/runtime/formats/state_dict.h"
#include "trainer_template/runtime/tensors/scalar_types.h"

namespace torchbridge::train {
namespace {

using Kind = PickledValue::Kind;

TrainError file_error(const std::filesystem::path& path, const std::string& what) {
  return TrainError(path.string() + " " + what);
}

}  // namespace

struct TorchFile::Storages {
  std::unordered_map<std::string, c10::Storage> by_key;
};

TorchFile::TorchFile(const std::filesystem::path& path)
    : archive_(path), content_(archive_.content()), storages_(std::make_unique<Storages>()) {}

TorchFile::~TorchFile() = default;

at::Tensor TorchFile::tensor(const PickledTensor& at) {
  auto found = storages_->by_key.find(at.storage);
  if (found == storages_->by_key.end()) {
    const auto size = static_cast<std::int64_t>(archive_.storage_bytes(at));
    c10::Storage storage(c10::Storage::use_byte_size_t(), size, c10::GetCPUAllocator(), false);
    archive_.read_storage(at, storage.mutable_data());
    found = storages_->by_key.emplace(at.storage, std::move(storage)).first;
  }
  const c10::Storage& storage = found->second;
  if (storage.nbytes() < static_cast<std::size_t>(at.storage_size) * element_size(at.dtype)) {
    throw file_error(path(), "has a tensor that reaches beyond its storage '" + printable(at.storage) + "'");
  }
  at::Tensor tensor = at::empty({0}, at::TensorOptions(scalar_type_of(at.dtype)));
  tensor.set_(storage, at.offset, at.shape, at.strides);
  return tensor;
}

NamedTensors TorchFile::tensors(const PickledValue& dict) {
  NamedTensors tensors;
  std::unordered_set<std::string_view> names;
  for (std::size_t i = 0; i < dict.items.size(); i += 2) {
    const PickledValue &key = *dict.items[i], &value = *dict.items[i + 1];
    if (!key.is(Kind::kText))
      throw file_error(path(), "has the number " + std::to_string(key.integer) + " as the name of a tensor");
    if (!value.is(Kind::kTensor)) throw file_error(path(), "has '" + printable(key.text) + "', which is not a tensor");
    if (!names.insert(key.text).second) throw file_error(path(), "has '" + printable(key.text) + "' twice");
    tensors.emplace_back(key.text, tensor(value.tensor));
  }
  return tensors;
}

NamedTensors TorchFile::state_dict() {
  const auto found = find_state_dict(content());
  if (!found) throw file_error(path(), found.error().message);
  NamedTensors all = tensors(**found);
  const std::size_t prefix = common_prefix(**found).size();
  for (auto& [name, tensor] : all) name.erase(0, prefix);
  return all;
}

}  // namespace torchbridge::train
