// The numbers of a TrainState by name, "grad_scaler.scale", as a manifest has them under "state".
#pragma once

#include <map>
#include <string>

#include "trainer_template/runtime/base/train_state.h"

namespace torchbridge::train {

// What is not set has no entry. All values are finite, as JSON needs it.
std::map<std::string, double> state_entries(const TrainState& state);

// The inverse: sets what has an entry, and leaves entries alone that it does not know. Throws std::invalid_argument,
// for the text after a manifest's name, for an entry that is missing or cannot be.
void read_state_entries(const std::map<std::string, double>& entries, TrainState& state);

}  // namespace torchbridge::train
