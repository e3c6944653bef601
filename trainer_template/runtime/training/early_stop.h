// Stops training when the evaluation loss no longer decreases, and records the lowest one.
#pragma once

#include <cstdint>
#include <limits>

#include "trainer_template/runtime/base/train_state.h"

namespace torchbridge::train {

// The same on all ranks, which see the same losses.
class EarlyStop {
 public:
  // `patience`: evaluations without a lower loss until is_due(); 0: never. Resumes from `state` and updates it: it must
  // outlive this.
  EarlyStop(std::int64_t patience, EarlyStopState& state) : patience_(patience), state_(state) {}

  // NaN is not a lower loss.
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
