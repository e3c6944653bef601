// Stops training when evaluations no longer get better, and remembers the best.
#pragma once

#include <cstdint>
#include <limits>

#include "trainer_template/runtime/base/train_state.h"

namespace torchbridge::train {

// The same on all ranks, which see the same losses.
class EarlyStop {
 public:
  // `patience`: evaluations without a lower loss until is_due(); 0: never. Goes on from `state` and keeps it up to
  // date: it must outlive this.
  EarlyStop(std::int64_t patience, EarlyStopState& state) : patience_(patience), state_(state) {}

  // A loss that is NaN is no lower one.
  void observe(double eval_loss, std::int64_t step) {
    const bool is_lower = state_.best_loss ? eval_loss < *state_.best_loss : eval_loss < kInfinity;
    state_ = is_lower ? EarlyStopState{.best_loss = eval_loss, .best_step = step}
                      : EarlyStopState{state_.best_loss, state_.best_step, state_.without + 1};
  }
  bool is_due() const { return patience_ > 0 && state_.without >= patience_; }
  const EarlyStopState& state() const { return state_; }

 private:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  std::int64_t patience_;
  EarlyStopState& state_;
};

}  // namespace torchbridge::train
