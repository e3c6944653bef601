#include "trainer_template/runtime/checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <sstream>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <torchbridge/errors.h>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "trainer_template/runtime/checkpoint_format/checkpoint_files.h"
#include "trainer_template/runtime/formats/safetensors_file.h"
#include "trainer_template/runtime/tensors/scalar_types.h"

namespace torchbridge::train {
namespace {

namespace fs = std::filesystem;

std::string describe(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.sizes();
  return text.str();
}

// Refers to the bytes of the file if they are aligned for the type, else copies them: files of
// other programs may have any alignment.
at::Tensor tensor_of(const std::shared_ptr<const SafetensorsFile>& file, const TensorEntry& entry) {
  const auto options = at::TensorOptions(scalar_type_of(entry.dtype));
  const std::string_view bytes = file->bytes(entry);
  if (!bytes.empty() &&
      reinterpret_cast<std::uintptr_t>(bytes.data()) % element_size(entry.dtype) == 0) {
    return at::from_blob(
        const_cast<char*>(bytes.data()), entry.shape, [file](void*) {}, options);
  }
  at::Tensor tensor = at::empty(entry.shape, options);
  if (!bytes.empty()) std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

// REQUIRES: a file from `path`.
NamedTensors tensors_of(const std::shared_ptr<const SafetensorsFile>& file, const fs::path& path) {
  NamedTensors tensors;
  for (const TensorEntry& entry : file->header().tensors) {
    if (element_size(entry.dtype) == 0)
      throw TrainError(
          formatted("{} has tensor '{}' of type {}, which is not known, or whose elements are "
                    "parts of bytes: it is not loaded",
                    path.string(), printable(entry.name), entry.dtype));
    tensors.emplace_back(entry.name, tensor_of(file, entry));
  }
  const std::unordered_map<std::string, at::Tensor> by_name(tensors.begin(), tensors.end());
  for (const auto& [name, first] : file->header().metadata) {
    const auto tied = by_name.find(first);
    if (tied != by_name.end() && !by_name.contains(name)) tensors.emplace_back(name, tied->second);
  }
  return tensors;
}

// "; it has 'a', 'b', ... instead": the first names of the file that the model does not have. May
// be empty.
std::string unknown_names(const NamedTensors& from, const NamedTensors& into) {
  constexpr std::size_t kShown = 3;
  std::unordered_set<std::string_view> known;
  for (const auto& [name, tensor] : into) known.insert(name);
  std::string names;
  std::size_t count = 0;
  for (const auto& [name, tensor] : from) {
    if (known.contains(name)) continue;
    if (++count > kShown) break;
    names += (names.empty() ? "'" : ", '") + printable(name) + "'";
  }
  return names.empty() ? names
                       : formatted("; it has {}{} instead", names, count > kShown ? ", ..." : "");
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

std::string header_for(const NamedTensors& ordered,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<TensorEntry> entries;
  for (const auto& [name, tensor] : ordered) {
    entries.push_back(
        {.name = name, .dtype = dtype_name(tensor.scalar_type()), .shape = tensor.sizes().vec()});
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
    if (tensor.numel() > 0)
      parts.emplace_back(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
  }
  return write_recorded(files, path, parts);
}

NamedTensors read_safetensors(const fs::path& path, Links links) {
  return tensors_of(std::make_shared<const SafetensorsFile>(path, links), path);
}

NamedTensors read_safetensors(const std::shared_ptr<FileImage>& image, const fs::path& path) {
  return tensors_of(std::make_shared<const SafetensorsFile>(image, path), path);
}

void copy_tensors(const NamedTensors& from, const NamedTensors& into, const std::string& what) {
  std::unordered_map<std::string, at::Tensor> given(from.begin(), from.end());
  for (const auto& [name, tensor] : into) {
    const auto found = given.find(name);
    if (found == given.end()) {
      throw TrainError(formatted(
          "{} has no '{}', which this model has with shape {}{}: was another --model used?", what,
          name, describe(tensor), unknown_names(from, into)));
    }
    if (found->second.sizes() != tensor.sizes()) {
      throw TrainError(
          formatted("{} has '{}' with shape {}, this model with {}: was another --model used?",
                    what, name, describe(found->second), describe(tensor)));
    }
    if (found->second.scalar_type() != tensor.scalar_type()) {
      throw TrainError(formatted("{} has '{}' of type {}, this model of {}", what, name,
                                 c10::toString(found->second.scalar_type()),
                                 c10::toString(tensor.scalar_type())));
    }
  }
  for (const auto& [name, tensor] : into) given.erase(name);
  if (!given.empty()) {
    throw TrainError(
        formatted("{} holds '{}', which this model does not have: was another --model used?", what,
                  printable(given.begin()->first)));
  }

  const at::NoGradGuard no_grad;
  std::unordered_map<std::string, at::Tensor> values(from.begin(), from.end());
  for (const auto& [name, tensor] : into) tensor.copy_(values.at(name));
}

}  // namespace torchbridge::train
