#include "trainer_template/runtime/checkpoint/tied_weights.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "bridge/base/env_map.h"
#include "trainer_template/runtime/base/errors.h"

namespace torchbridge::train {
namespace {

bool same_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.const_data_ptr() == b.const_data_ptr() && a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         a.strides() == b.strides();
}

bool same_values(const at::Tensor& a, const at::Tensor& b) {
  return same_memory(a, b) || (a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.equal(b));
}

}  // namespace

NamedTensors without_aliases(const NamedTensors& from, const ModelTensors& model, const std::string& what) {
  const std::unordered_map<std::string, at::Tensor> given(from.begin(), from.end());
  std::unordered_set<std::string> known;
  for (const auto& [name, tensor] : model.all()) known.insert(name);

  NamedTensors once;
  std::unordered_map<std::string, std::string> renamed;  // first name -> the other name that the file has for it
  for (const auto& [name, tensor] : from) {
    const auto alias = model.aliases.find(name);
    if (alias == model.aliases.end() || known.contains(name)) {
      const bool tied = !known.contains(name) && std::ranges::any_of(from, [&](const auto& other) {
        return known.contains(other.first) && same_memory(other.second, tensor);
      });
      if (!tied) once.emplace_back(name, tensor);
      continue;
    }
    const std::string& first = alias->second;
    const auto other = given.find(first);
    const auto before = renamed.find(first);
    if (other == given.end() && before == renamed.end()) {
      renamed.emplace(first, name);
      once.emplace_back(first, tensor);
    } else if (const auto& kept = other == given.end() ? before->second : first; !same_values(given.at(kept), tensor)) {
      throw TrainError(what + " has different values for '" + printable(name) + "' and '" + printable(kept) +
                       "', which are one parameter of this model");
    }
  }
  return once;
}

std::map<std::string, std::string> model_metadata(const ModelTensors& model) {
  std::map<std::string, std::string> metadata = model.aliases;
  metadata["format"] = "pt";
  return metadata;
}

}  // namespace torchbridge::train
