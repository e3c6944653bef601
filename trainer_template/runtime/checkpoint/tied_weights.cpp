#include "trainer_template/runtime/checkpoint/tied_weights.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
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

// The weights of a file that the model knows, to find copies of them.
class KnownWeights {
 public:
  void add(const at::Tensor& tensor) {
    places_.insert(place_of(tensor));
    if (is_matrix(tensor)) matrices_[beginning_of(tensor)].push_back(tensor);
  }
  // Also one with equal values, as safetensors asks for: by chance no matrix has another's, unless
  // it is constant. Vectors do, such as biases.
  bool has_copy(const at::Tensor& tensor) const {
    if (places_.contains(place_of(tensor))) return true;
    if (!is_matrix(tensor) || tensor.eq(tensor.flatten()[0]).all().item<bool>()) return false;
    const auto found = matrices_.find(beginning_of(tensor));
    return found != matrices_.end() &&
           std::ranges::any_of(found->second,
                               [&](const at::Tensor& known) { return same_values(known, tensor); });
  }

 private:
  static bool is_matrix(const at::Tensor& tensor) {
    return tensor.dim() > 1 && tensor.numel() > 0 && tensor.is_cpu() && tensor.is_contiguous();
  }
  static std::string_view beginning_of(const at::Tensor& tensor) {
    constexpr std::size_t kMost = 64;
    return {static_cast<const char*>(tensor.const_data_ptr()), std::min(tensor.nbytes(), kMost)};
  }

  std::set<Place> places_;
  std::map<std::string_view, std::vector<at::Tensor>> matrices_;  // by their first bytes
};

}  // namespace

NamedTensors without_aliases(const NamedTensors& from, const ModelTensors& model,
                             const std::string& what) {
  const std::unordered_map<std::string, at::Tensor> given(from.begin(), from.end());
  std::unordered_set<std::string> known;
  for (const auto& [name, tensor] : model.all()) known.insert(name);
  KnownWeights known_weights;
  for (const auto& [name, tensor] : from) {
    if (known.contains(name) || model.aliases.contains(name)) known_weights.add(tensor);
  }

  NamedTensors once;
  // First name -> the other name that the file has for it.
  std::unordered_map<std::string, std::string> renamed;
  for (const auto& [name, tensor] : from) {
    const auto alias = model.aliases.find(name);
    if (alias == model.aliases.end() || known.contains(name)) {
      if (known.contains(name) || !known_weights.has_copy(tensor)) once.emplace_back(name, tensor);
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
