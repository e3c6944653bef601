#include <torchbridge/train/run/early_stop.h>

namespace torchbridge::train {

EarlyStop::EarlyStop(std::int64_t patience, const std::map<std::string, double>& state) : patience_(patience) {
  const auto loss = state.find("best.loss"), step = state.find("best.step"), without = state.find("best.without");
  if (without == state.end()) return;
  without_ = static_cast<std::int64_t>(without->second);
  if (loss == state.end() || step == state.end()) return;
  best_ = loss->second;
  best_step_ = static_cast<std::int64_t>(step->second);
}

void EarlyStop::observe(double eval_loss, std::int64_t step) {
  if (eval_loss < best_) {
    best_ = eval_loss;
    best_step_ = step;
    without_ = 0;
  } else {
    ++without_;
  }
}

void EarlyStop::put_state(std::map<std::string, double>& state) const {
  state["best.without"] = static_cast<double>(without_);
  if (!has_best()) return;
  state["best.loss"] = best_;
  state["best.step"] = static_cast<double>(best_step_);
}

}  // namespace torchbridge::train
