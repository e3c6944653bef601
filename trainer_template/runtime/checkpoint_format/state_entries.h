// The numbers of a TrainState by name, "grad_scaler.scale", as a manifest has them under "state".
#pragma once

#include <map>
#include <string>

#include "trainer_template/runtime/base/train_state.h"

namespace torchbridge::train {

// Members that are not set have no entry. All values are finite, as JSON requires.
std::map<std::string, double> state_entries(const TrainState& state);

// The inverse: sets the members that have an entry, and ignores unknown entries. Throws std::invalid_argument for a
// missing or impossible entry; its text follows the manifest's name in a message.
void read_state_entries(const std::map<std::string, double>& entries, TrainState& state);

}  // namespace torchbridge::train
