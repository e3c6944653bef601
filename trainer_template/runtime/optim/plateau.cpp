#include "trainer_template/runtime/optim/plateau.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "trainer_template/runtime/base/errors.h"

namespace torchbridge::train {
namespace {

PlateauState& initialized(std::optional<PlateauState>& state, std::vector<double> learning_rates) {
  if (state && state->learning_rates.size() != learning_rates.size()) {
    throw TrainError("the plateau schedule's state has " + std::to_string(state->learning_rates.size()) +
                     " parameter groups, the optimizer has " + std::to_string(learning_rates.size()));
  }
  if (!state) state = PlateauState{.learning_rates = std::move(learning_rates), .best = std::nullopt};
  return *state;
}

}  // namespace

Plateau::Plateau(const LrSchedule& schedule, std::vector<double> learning_rates, std::optional<PlateauState>& state)
    : schedule_(schedule), state_(initialized(state, std::move(learning_rates))) {}

bool Plateau::is_better(double value) const {
  if (!state_.best) return value < HUGE_VAL;
  if (schedule_.absolute) return value < *state_.best - schedule_.threshold;
  return value < *state_.best * (1.0 - schedule_.threshold);
}

void Plateau::observe(double value) {
  if (is_better(value)) {
    state_.best = value;
    state_.bad = 0;
  } else {
    ++state_.bad;
  }
  if (state_.cooldown > 0) {
    --state_.cooldown;
    state_.bad = 0;
  }
  if (state_.bad <= schedule_.patience) return;
  for (double& rate : state_.learning_rates) {
    const double lower = std::max(rate * schedule_.factor, schedule_.min_lr);
    if (rate - lower > schedule_.eps) rate = lower;
  }
  state_.cooldown = schedule_.cooldown;
  state_.bad = 0;
}

}  // namespace torchbridge::train
