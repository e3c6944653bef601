// Which parameters weight decay is not for: groups made by a rule instead of by hand.
#pragma once

#include <string>
#include <vector>

#include "trainer_template/runtime/optim/optimizer.h"

namespace torchbridge::train {

struct DecayRule {
  bool spare_vectors = false;       // no decay for parameters of at most one dimension: biases and scales of norms
  std::vector<std::string> spared;  // nor for those whose name matches one of these shell patterns: "*.bias", "embed*"
};

// One group "decay" with the options as given, and, where the rule spares any, "no_decay" with weight_decay 0. The
// order of parameters is kept within a group. Throws TrainError for a pattern that no parameter matches: it is
// misspelt.
std::vector<ParameterGroup> groups_by_decay(const NamedTensors& parameters, const OptimizerOptions& options,
                                            const DecayRule& rule);

}  // namespace torchbridge::train
