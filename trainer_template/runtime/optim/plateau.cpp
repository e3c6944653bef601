#include <torchbridge/train/optim/plateau.h>

#include <torchbridge/train/errors.h>

#include <algorithm>
#include <cmath>

namespace torchbridge::train {
namespace {

std::string lr_name(std::size_t group) { return "lr." + std::to_string(group); }

}  // namespace

Plateau::Plateau(const LrSchedule& schedule, std::vector<double> learning_rates)
    : schedule_(schedule), learning_rates_(std::move(learning_rates)) {}

bool Plateau::is_better(double value) const {
  if (!measured_) return value < HUGE_VAL;
  if (schedule_.absolute) return value < best_ - schedule_.threshold;
  return value < best_ * (1.0 - schedule_.threshold);
}

void Plateau::observe(double value) {
  if (is_better(value)) {
    measured_ = true;
    best_ = value;
    bad_ = 0;
  } else {
    ++bad_;
  }
  if (cooldown_ > 0) {
    --cooldown_;
    bad_ = 0;
  }
  if (bad_ <= schedule_.patience) return;
  for (double& rate : learning_rates_) {
    const double lower = std::max(rate * schedule_.factor, schedule_.min_lr);
    if (rate - lower > schedule_.eps) rate = lower;
  }
  cooldown_ = schedule_.cooldown;
  bad_ = 0;
}

std::map<std::string, double> Plateau::state() const {
  std::map<std::string, double> state = {{"bad", static_cast<double>(bad_)}, {"cooldown", static_cast<double>(cooldown_)}};
  if (measured_) state["best"] = best_;
  for (std::size_t i = 0; i < learning_rates_.size(); ++i) state[lr_name(i)] = learning_rates_[i];
  return state;
}

void Plateau::load_state(const std::map<std::string, double>& state) {
  const auto value = [&](const std::string& name) {
    const auto found = state.find(name);
    if (found == state.end()) throw TrainError("the state of the plateau schedule has no '" + name + "'");
    return found->second;
  };
  if (state.contains(lr_name(learning_rates_.size()))) {
    throw TrainError("the state of the plateau schedule is for more than " + std::to_string(learning_rates_.size()) +
                     " parameter groups");
  }
  for (std::size_t i = 0; i < learning_rates_.size(); ++i) learning_rates_[i] = value(lr_name(i));
  bad_ = static_cast<std::int64_t>(value("bad"));
  cooldown_ = static_cast<std::int64_t>(value("cooldown"));
  measured_ = state.contains("best");
  best_ = measured_ ? value("best") : 0;
}

}  // namespace torchbridge::train
