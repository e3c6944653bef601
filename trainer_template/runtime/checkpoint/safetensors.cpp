#include <torchbridge/train/checkpoint/safetensors.h>

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <torchbridge/core/env_map.h>
#include <torchbridge/train/checkpoint/checkpoint_files.h>
#include <torchbridge/train/errors.h>
#include <torchbridge/train/checkpoint/safetensors_header.h>
#include <torchbridge/train/checkpoint/scalar_types.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <unordered_map>

namespace torchbridge::train {
namespace {

namespace fs = std::filesystem;

std::string describe(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.sizes();
  return text.str();
}

}  // namespace

NamedTensors in_file_order(const NamedTensors& tensors) {
  NamedTensors ordered = tensors;
  // Wide types first keeps each tensor aligned, as the reference implementation does.
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
    return a.second.element_size() > b.second.element_size();
  });
  return ordered;
}

std::string header_for(const NamedTensors& ordered, const std::map<std::string, std::string>& metadata) {
  std::vector<TensorEntry> entries;
  for (const auto& [name, tensor] : ordered) {
    entries.push_back({.name = name, .dtype = dtype_name(tensor.scalar_type()), .shape = tensor.sizes().vec()});
  }
  return make_header(entries, metadata);
}

FileRecord write_safetensors(FileLayer& files, const fs::path& path, const NamedTensors& tensors,
                             const std::map<std::string, std::string>& metadata) {
  NamedTensors ordered = in_file_order(tensors);
  const std::string header = header_for(ordered, metadata);
  std::vector<std::string_view> parts = {header};
  for (auto& [name, tensor] : ordered) {
    tensor = tensor.detach().cpu().contiguous();
    if (tensor.numel() > 0) parts.emplace_back(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
  }
  return write_recorded(files, path, parts);
}

NamedTensors read_safetensors(const fs::path& path) {
  const auto fail = [&](const std::string& reason) { return TrainError(path.string() + " " + reason); };
  std::error_code error;
  const std::uint64_t file_size = fs::file_size(path, error);  // an error for a folder
  std::ifstream file(path, std::ios::binary);
  if (error || !file) throw fail("is missing or cannot be read");

  std::string start(std::min<std::uint64_t>(8, file_size), '\0');
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  const auto size = header_size(start, file_size);
  if (!size) throw fail(size.error().message);
  start.resize(*size);
  file.read(start.data() + 8, static_cast<std::streamsize>(*size - 8));
  if (!file) throw fail("is cut off");
  const auto header = parse_header(start, file_size);
  if (!header) throw fail(header.error().message);

  NamedTensors tensors;
  for (const TensorEntry& entry : header->tensors) {
    at::Tensor tensor = at::empty(entry.shape, at::TensorOptions(scalar_type_of(entry.dtype)));
    file.seekg(static_cast<std::streamoff>(header->size + entry.begin));
    file.read(static_cast<char*>(tensor.mutable_data_ptr()), static_cast<std::streamsize>(entry.end - entry.begin));
    if (!file) throw fail("is cut off");
    tensors.emplace_back(entry.name, std::move(tensor));
  }
  return tensors;
}

void copy_tensors(const NamedTensors& from, const NamedTensors& into, const std::string& what) {
  std::unordered_map<std::string, at::Tensor> given(from.begin(), from.end());
  for (const auto& [name, tensor] : into) {
    const auto found = given.find(name);
    if (found == given.end()) {
      throw TrainError(what + " has no '" + name + "', which this model has with shape " + describe(tensor) +
                       ": was another --model used?");
    }
    if (found->second.sizes() != tensor.sizes()) {
      throw TrainError(what + " has '" + name + "' with shape " + describe(found->second) + ", this model with " +
                       describe(tensor) + ": was another --model used?");
    }
    if (found->second.scalar_type() != tensor.scalar_type()) {
      throw TrainError(what + " has '" + name + "' of type " + c10::toString(found->second.scalar_type()) +
                       ", this model of " + c10::toString(tensor.scalar_type()));
    }
  }
  for (const auto& [name, tensor] : into) given.erase(name);
  if (!given.empty()) {
    throw TrainError(what + " holds '" + printable(given.begin()->first) +
                     "', which this model does not have: was another --model used?");
  }

  const at::NoGradGuard no_grad;
  std::unordered_map<std::string, at::Tensor> values(from.begin(), from.end());
  for (const auto& [name, tensor] : into) tensor.copy_(values.at(name));
}

}  // namespace torchbridge::train
