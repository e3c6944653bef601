// Lowers learning rates when the measured value no longer decreases: Python's ReduceLROnPlateau(mode="min").
#pragma once

#include <optional>
#include <vector>

#include "trainer_template/runtime/base/train_state.h"
#include "trainer_template/runtime/optim/lr_schedule.h"

namespace torchbridge::train {

class Plateau {
 public:
  // Reads the plateau fields of `schedule`. Takes one learning rate for each parameter group. Resumes from `state` if
  // it has a value, and updates it: it must outlive this. Throws TrainError if the state has another number of groups.
  Plateau(const LrSchedule& schedule, std::vector<double> learning_rates, std::optional<PlateauState>& state);

  // A new measurement, the same on all ranks. NaN counts as no improvement.
  void observe(double value);

  const std::vector<double>& learning_rates() const { return state_.learning_rates; }

 private:
  bool is_better(double value) const;

  LrSchedule schedule_;
  PlateauState& state_;
};

}  // namespace torchbridge::train
