// Lowers learning rates when what is measured stops getting smaller: Python's ReduceLROnPlateau(mode="min").
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <torchbridge/train/optim/lr_schedule.h>

namespace torchbridge::train {

class Plateau {
 public:
  // Reads the plateau fields of `schedule`; one learning rate for each parameter group.
  Plateau(const LrSchedule& schedule, std::vector<double> learning_rates);

  // A new measurement, the same on all ranks. NaN counts as no better.
  void observe(double value);

  const std::vector<double>& learning_rates() const { return learning_rates_; }

  // By name, for a checkpoint. Restoring the state of another number of groups throws TrainError.
  std::map<std::string, double> state() const;
  void load_state(const std::map<std::string, double>& state);

 private:
  bool is_better(double value) const;

  LrSchedule schedule_;
  std::vector<double> learning_rates_;
  bool measured_ = false;
  double best_ = 0;  // once measured_
  std::int64_t bad_ = 0, cooldown_ = 0;
};

}  // namespace torchbridge::train
