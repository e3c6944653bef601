// Sets the learning rate of each step in the optimizer's parameter groups, as Python's LRScheduler.step() does.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trainer_template/runtime/base/train_state.h"
#include "trainer_template/runtime/optim/lr_schedule.h"
#include "trainer_template/runtime/optim/optimizer.h"
#include "trainer_template/runtime/optim/plateau.h"

namespace torchbridge::train {

// Gives the same rates on all ranks.
class LearningRates {
 public:
  // The schedule scales the learning rate that each group has now. A plateau schedule resumes from `state` and updates
  // it. `optimizer` and `state` must outlive this.
  LearningRates(const LrSchedule& schedule, Optimizer& optimizer, std::optional<PlateauState>& state);

  // Call it before step number `step`, counted from 1. Sets the learning rates, and with one-cycle the momentum too.
  // Returns the first group's learning rate.
  double set(std::int64_t step);

  // Call it after an evaluation. A plateau schedule uses the loss, others ignore it.
  void observe(double eval_loss);

 private:
  LrSchedule schedule_;
  Optimizer& optimizer_;
  std::vector<double> base_rates_;  // of the groups
  std::optional<Plateau> plateau_;
};

}  // namespace torchbridge::train
