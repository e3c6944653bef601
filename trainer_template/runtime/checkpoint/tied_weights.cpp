#include "trainer_template/runtime/checkpoint/tied_weights.h"

#include <cstdint>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <torchbridge/errors.h>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"

namespace torchbridge::train {
namespace {

// Equal for two tensors that are the same elements in the same memory.
using Place =
    std::tuple<const void*, at::ScalarType, std::vector<std::int64_t>, std::vector<std::int64_t>>;

Place place_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr(), tensor.scalar_type(), tensor.sizes().vec(),
          tensor.strides().vec()};
}

bool same_values(const at::Tensor& a, const at::Tensor& b) {
  return place_of(a) == place_of(b) ||
         (a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.equal(b));
}

}  // namespace

NamedTensors without_aliases(const NamedTensors& from, const ModelTensors& model,
                             const std::string& what) {
  const std::unordered_map<std::string, at::Tensor> given(from.begin(), from.end());
  std::unordered_set<std::string> known;
  for (const auto& [name, tensor] : model.all()) known.insert(name);
  std::set<Place> known_places;
  for (const auto& [name, tensor] : from) {
    if (known.contains(name)) known_places.insert(place_of(tensor));
  }

  NamedTensors once;
  // First name -> the other name that the file has for it.
  std::unordered_map<std::string, std::string> renamed;
  for (const auto& [name, tensor] : from) {
    const auto alias = model.aliases.find(name);
    if (alias == model.aliases.end() || known.contains(name)) {
      const bool is_tied = !known.contains(name) && known_places.contains(place_of(tensor));
      if (!is_tied) once.emplace_back(name, tensor);
      continue;
    }
    const std::string& first = alias->second;
    const auto other = given.find(first);
    const auto before = renamed.find(first);
    if (other == given.end() && before == renamed.end()) {
      renamed.emplace(first, name);
      once.emplace_back(first, tensor);
    } else if (const auto& kept = other == given.end() ? before->second : first;
               !same_values(given.at(kept), tensor)) {
      throw TrainError(formatted(
          "{} has different values for '{}' and '{}', which are one parameter of this model", what,
          printable(name), printable(kept)));
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
