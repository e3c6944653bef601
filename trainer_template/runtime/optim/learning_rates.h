// The learning rate of each step, put into the optimizer's parameter groups: what LRScheduler.step() is in Python.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trainer_template/runtime/optim/lr_schedule.h"
#include "trainer_template/runtime/optim/optimizer.h"
#include "trainer_template/runtime/optim/plateau.h"
#include "trainer_template/runtime/base/train_state.h"

namespace torchbridge::train {

// The same on all ranks.
class LearningRates {
 public:
  // Applied to the learning rate that each group has now. `optimizer` and `state`, which a plateau schedule goes on
  // from and keeps up to date, must outlive it.
  LearningRates(const LrSchedule& schedule, Optimizer& optimizer, std::optional<PlateauState>& state);

  // Before step number `step`, from 1 on: learning rates, and for one-cycle momentum. Returns the first group's.
  double set(std::int64_t step);

  // After an evaluation: what a plateau schedule goes by. Others take no notice.
  void observe(double eval_loss);

 private:
  LrSchedule schedule_;
  Optimizer& optimizer_;
  std::vector<double> base_rates_;  // of the groups
  std::optional<Plateau> plateau_;
};

}  // namespace torchbridge::train
