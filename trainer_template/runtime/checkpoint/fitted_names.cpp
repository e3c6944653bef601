#include "trainer_template/runtime/checkpoint/fitted_names.h"

#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

namespace torchbridge::train {
namespace {

using NameSet = std::unordered_set<std::string>;

// Of DistributedDataParallel and of torch.compile.
constexpr std::string_view kWrappers[] = {"module.", "_orig_mod."};
// What the model of another program may have before the names of this one: nothing, nanoGPT's and
// transformers' module.
constexpr std::string_view kOuterNames[] = {"", "transformer.", "model."};

std::string_view without_wrappers(std::string_view name) {
  for (bool has_one = true; has_one;) {
    has_one = false;
    for (const std::string_view wrapper : kWrappers) {
      if (!name.starts_with(wrapper)) continue;
      name.remove_prefix(wrapper.size());
      has_one = true;
    }
  }
  return name;
}

NameSet names_of(const ModelTensors& model) {
  NameSet names;
  for (const auto& [name, tensor] : model.all()) names.insert(name);
  for (const auto& [name, first] : model.aliases) names.insert(name);
  return names;
}

NamedTensors without(std::string_view outer, const NamedTensors& tensors) {
  NamedTensors shorter;
  for (const auto& [name, tensor] : tensors) {
    std::string_view rest = without_wrappers(name);
    // Lightning's module holds the wrapped model: "model._orig_mod.".
    if (rest.starts_with(outer)) rest = without_wrappers(rest.substr(outer.size()));
    shorter.emplace_back(rest, tensor);
  }
  return shorter;
}

// How many tensors the model knows; 0 if two of them have the same name.
std::size_t known_in(const NamedTensors& tensors, const NameSet& known) {
  NameSet seen;
  std::size_t count = 0;
  for (const auto& [name, tensor] : tensors) {
    if (!seen.insert(name).second) return 0;
    count += known.count(name);
  }
  return count;
}

}  // namespace

NamedTensors fitted_names(const NamedTensors& tensors, const ModelTensors& model) {
  const NameSet known = names_of(model);
  NamedTensors best = tensors;
  std::size_t most = known_in(tensors, known);
  for (const std::string_view outer : kOuterNames) {
    NamedTensors shorter = without(outer, tensors);
    const std::size_t count = known_in(shorter, known);
    if (count <= most) continue;
    most = count;
    best = std::move(shorter);
  }
  return best;
}

}  // namespace torchbridge::train
