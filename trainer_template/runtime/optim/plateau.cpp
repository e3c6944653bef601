#include "trainer_template/runtime/optim/plateau.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <torchbridge/errors.h>

#include "bridge/base/message_text.h"

namespace torchbridge::train {
namespace {

std::string rate_key(std::size_t group) { return "lr." + std::to_string(group); }

std::string base_key(std::size_t group) { return "base." + std::to_string(group); }

}  // namespace

PartNumbers Plateau::numbers() const {
  PartNumbers numbers = {{"bad", static_cast<double>(bad_)},
                         {"cooldown", static_cast<double>(cooldown_)}};
  if (best_) numbers["best"] = *best_;
  for (std::size_t i = 0; i < learning_rates_.size(); ++i) {
    numbers[rate_key(i)] = learning_rates_[i];
    numbers[base_key(i)] = base_rates_[i];
  }
  return numbers;
}

void Plateau::load(const SavedNumbers& saved) {
  std::vector<double> rates;
  while (const auto rate = saved.find(rate_key(rates.size()))) rates.push_back(*rate);
  if (rates.size() != learning_rates_.size()) {
    throw TrainError(
        formatted("the plateau schedule's state has {} parameter groups, the optimizer has {}",
                  rates.size(), learning_rates_.size()));
  }
  for (std::size_t i = 0; i < rates.size(); ++i) {
    const double base = base_rates_[i], base_then = saved.find(base_key(i)).value_or(base);
    if (base == base_then)
      learning_rates_[i] = rates[i];
    else
      learning_rates_[i] = std::max(base_then > 0 ? base * (rates[i] / base_then) : base,
                                    std::min(base, schedule_.min_lr));
  }
  best_ = saved.find("best");
  bad_ = saved.count_at("bad");
  cooldown_ = saved.count_at("cooldown");
}

bool Plateau::is_better(double value) const {
  if (!best_) return value < HUGE_VAL;
  if (schedule_.absolute) return value < *best_ - schedule_.threshold;
  return value < *best_ * (1.0 - schedule_.threshold);
}

void Plateau::observe(double value) {
  if (is_better(value)) {
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

}  // namespace torchbridge::train
