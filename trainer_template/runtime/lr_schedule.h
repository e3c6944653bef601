// The learning rate of each step: constant, or warm-up and cosine.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace torchbridge::train {

struct LrSchedule {
  double base = 0.1;
  bool cosine = false;              // falls from base to 0 between the end of warm-up and total_steps
  std::int64_t warmup_steps = 0;    // rises in equal parts; step 1 has base / warmup_steps
  std::int64_t total_steps = 0;
};

// `step` counts from 1.
inline double learning_rate(const LrSchedule& schedule, std::int64_t step) {
  if (step <= schedule.warmup_steps) return schedule.base * static_cast<double>(step) / schedule.warmup_steps;
  if (!schedule.cosine || schedule.total_steps <= schedule.warmup_steps) return schedule.base;
  const double done = static_cast<double>(step - 1 - schedule.warmup_steps) /
                      static_cast<double>(schedule.total_steps - schedule.warmup_steps);
  return schedule.base * 0.5 * (1 + std::cos(std::numbers::pi * done));
}

}  // namespace torchbridge::train
