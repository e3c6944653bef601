#include <fnmatch.h>

#include <algorithm>

#include <torchbridge/errors.h>
#include <torchbridge/optimizer.h>

#include "bridge/base/message_text.h"

namespace torchbridge::train {
namespace {

bool matches(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

void check_used(const NamedTensors& parameters, const std::string& pattern) {
  if (std::ranges::any_of(parameters,
                          [&](const auto& item) { return matches(pattern, item.first); }))
    return;
  std::string names;
  for (std::size_t i = 0; i < parameters.size() && i < 4; ++i)
    names += (i ? ", " : "") + parameters[i].first;
  throw TrainError(
      formatted("no parameter matches the pattern '{}' of parameters without weight decay; the "
                "parameters are {}{}",
                pattern, names, parameters.size() > 4 ? " ..." : ""));
}

}  // namespace

std::vector<ParameterGroup> groups_by_decay(const NamedTensors& parameters,
                                            const OptimizerOptions& options,
                                            const DecayRule& rule) {
  for (const std::string& pattern : rule.excluded) check_used(parameters, pattern);
  ParameterGroup decay{.name = "decay", .parameters = {}, .options = options};
  ParameterGroup no_decay{.name = "no_decay", .parameters = {}, .options = options};
  no_decay.options.weight_decay = 0;
  for (const auto& item : parameters) {
    const bool by_name = std::ranges::any_of(
        rule.excluded, [&](const auto& pattern) { return matches(pattern, item.first); });
    ParameterGroup& group =
        by_name || (rule.exclude_1d && item.second.dim() <= 1) ? no_decay : decay;
    group.parameters.push_back(item);
  }
  std::vector<ParameterGroup> groups;
  if (!decay.parameters.empty()) groups.push_back(std::move(decay));
  if (!no_decay.parameters.empty()) groups.push_back(std::move(no_decay));
  return groups;
}

}  // namespace torchbridge::train
