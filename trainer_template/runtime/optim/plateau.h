// Lowers learning rates when what is measured stops getting smaller: Python's ReduceLROnPlateau(mode="min").
#pragma once

#include <optional>
#include <vector>

#include "trainer_template/runtime/optim/lr_schedule.h"
#include "trainer_template/runtime/base/train_state.h"

namespace torchbridge::train {

class Plateau {
 public:
  // Reads the plateau fields of `schedule`; one learning rate for each parameter group. Goes on from `state`, where
  // that has a value, and keeps it up to date: it must outlive this. Throws TrainError for that of another number of
  // groups.
  Plateau(const LrSchedule& schedule, std::vector<double> learning_rates, std::optional<PlateauState>& state);

  // A new measurement, the same on all ranks. NaN counts as no better.
  void observe(double value);

  const std::vector<double>& learning_rates() const { return state_.learning_rates; }

 private:
  bool is_better(double value) const;

  LrSchedule schedule_;
  PlateauState& state_;
};

}  // namespace torchbridge::train
