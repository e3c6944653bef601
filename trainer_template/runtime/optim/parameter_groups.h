// Parameter groups with and without weight decay, made by a rule.
#pragma once

#include <string>
#include <vector>

#include "trainer_template/runtime/optim/optimizer.h"

namespace torchbridge::train {

struct DecayRule {
  bool exclude_1d = false;  // no decay for parameters of at most one dimension: biases and scales of norms
  std::vector<std::string>
      excluded;  // nor for those whose name matches one of these shell patterns: "*.bias", "embed*"
};

// One group "decay" with the options as given, and, if the rule excludes any parameter, "no_decay" with weight_decay 0.
// A group keeps the order of parameters. Throws TrainError for a pattern that no parameter matches, as a misspelt one.
std::vector<ParameterGroup> groups_by_decay(const NamedTensors& parameters, const OptimizerOptions& options,
                                            const DecayRule& rule);

}  // namespace torchbridge::train
