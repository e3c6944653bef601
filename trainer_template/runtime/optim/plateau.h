// Lowers learning rates when the measured value no longer decreases: Python's
// ReduceLROnPlateau(mode="min").
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <torchbridge/lr_schedule.h>
#include <torchbridge/part.h>

namespace torchbridge::train {

class Plateau {
 public:
  // Reads the plateau fields of `schedule`. Takes one learning rate for each parameter group.
  Plateau(const LrSchedule& schedule, std::vector<double> learning_rates)
      : schedule_(schedule),
        base_rates_(learning_rates),
        learning_rates_(std::move(learning_rates)) {}

  // As those of a Part. A state that began with other learning rates gives the reduction: the rates
  // are those of this run, reduced as often. Throws TrainError if it has another number of groups.
  PartNumbers numbers() const;
  void load(const SavedNumbers& saved);

  // A new measurement, the same on all ranks. NaN counts as no improvement.
  void observe(double value);

  const std::vector<double>& learning_rates() const { return learning_rates_; }

 private:
  bool is_better(double value) const;

  LrSchedule schedule_;
  std::vector<double> base_rates_, learning_rates_;  // before any reduction, and now
  std::optional<double> best_;  // of the losses observed; nothing before the first that is a number
  std::int64_t bad_ = 0, cooldown_ = 0;  // evaluations
};

}  // namespace torchbridge::train
