#include "trainer_template/ckpt/tensor_bytes.h"

#include <algorithm>
#include <memory>

#include "trainer_template/runtime/base/errors.h"
#include "trainer_template/runtime/base/file_layer.h"
#include "trainer_template/runtime/formats/safetensors_header.h"

using namespace torchbridge::train;

namespace {

bool is_contiguous(const PickledTensor& tensor) {
  std::int64_t expected = 1;
  for (std::size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

std::uint64_t elements(const PickledTensor& tensor) {
  std::uint64_t count = 1;
  for (const std::int64_t length : tensor.shape) count *= static_cast<std::uint64_t>(length);
  return count;
}

// Appends the elements from `position` (in elements of the storage) in row-major order.
void gather(const PickledTensor& tensor, std::string_view storage, std::size_t dimension, std::int64_t position,
            std::string& into) {
  const std::size_t size = element_size(tensor.dtype);
  if (dimension == tensor.shape.size()) {
    into.append(storage.substr(static_cast<std::size_t>(position) * size, size));
    return;
  }
  for (std::int64_t i = 0; i < tensor.shape[dimension]; ++i)
    gather(tensor, storage, dimension + 1, position + i * tensor.strides[dimension], into);
}

}  // namespace

TensorBytes ArchiveTensors::contiguous(const std::string& name, const PickledTensor& tensor) {
  // A tensor with a stride of 0 repeats its elements and may be larger than any memory.
  constexpr std::uint64_t kMaxGathered = std::uint64_t{1} << 32;
  auto found = storages_.find(tensor.storage);
  if (found == storages_.end()) {
    std::string bytes(archive_.storage_bytes(tensor), '\0');
    archive_.read_storage(tensor, bytes.data());
    found = storages_.emplace(tensor.storage, std::move(bytes)).first;
  }
  const std::string_view storage = found->second;
  const std::size_t size = element_size(tensor.dtype);
  TensorBytes made{.name = name, .dtype = tensor.dtype, .shape = tensor.shape};
  if (std::ranges::find(tensor.shape, 0) != tensor.shape.end()) return made;
  if (static_cast<std::uint64_t>(tensor.storage_size) * size > storage.size()) {
    throw TrainError(archive_.path().string() + " has a tensor that reaches beyond its storage");
  }
  if (is_contiguous(tensor)) {
    made.bytes = storage.substr(static_cast<std::size_t>(tensor.offset) * size, elements(tensor) * size);
    return made;
  }
  if (__int128 all = 1;
      std::ranges::any_of(tensor.shape, [&](std::int64_t length) { return (all *= length) > kMaxGathered; })) {
    throw TrainError(archive_.path().string() +
                     " has a tensor that is not contiguous and has more than 2^32 elements, which is not converted");
  }
  gathered_.push_back(std::make_unique<std::string>());
  gathered_.back()->reserve(elements(tensor) * size);
  gather(tensor, storage, 0, tensor.offset, *gathered_.back());
  made.bytes = *gathered_.back();
  return made;
}

void write_safetensors_file(const std::filesystem::path& path, std::vector<TensorBytes> tensors,
                            const std::map<std::string, std::string>& metadata) {
  // Wide types first keeps each tensor aligned.
  std::ranges::stable_sort(tensors,
                           [](const auto& a, const auto& b) { return element_size(a.dtype) > element_size(b.dtype); });
  std::vector<TensorEntry> entries;
  for (const TensorBytes& tensor : tensors)
    entries.push_back({.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape});
  const std::string header = make_header(entries, metadata);
  std::vector<std::string_view> parts = {header};
  for (const TensorBytes& tensor : tensors) parts.push_back(tensor.bytes);
  real_files().write_synced(path, parts);
}
