// The learning rate of each step as a pure function: Python's torch.optim.lr_scheduler in closed form.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bridge/base/result.h"

namespace torchbridge::train {

struct LrKind;

// A schedule that the program adds: the factor of each group's learning rate, as the lambda of Python's LambdaLR.
// `step` counts from 0 after the warm-up; `total` is the number of steps after the warm-up.
struct CustomSchedule {
  std::string name;  // instead of KIND; it must not contain ':'
  std::function<double(std::int64_t step, std::int64_t total)> factor;
};

// Each kind reads its own fields; names and defaults are Python's. docs/use/optimizers.md has the table.
struct LrSchedule {
  const LrKind* kind = nullptr;                                           // nullptr: constant, or `own`
  std::function<double(std::int64_t step, std::int64_t total)> own = {};  // CustomSchedule::factor
  // LinearLR(start_factor=1/warmup_steps, total_iters=warmup_steps-1); the kind then starts at its step 0.
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 0;  // warm-up included; cosine, polynomial and one-cycle end there

  std::int64_t step_size = 30;                                      // step
  std::vector<std::int64_t> milestones;                             // multi-step: ascending
  double gamma = 0.1;                                               // step, multi-step
  double eta_min = 0;                                               // cosine
  double power = 1;                                                 // polynomial
  double pct_start = 0.3, div_factor = 25, final_div_factor = 1e4;  // one-cycle
  bool linear = false, three_phase = false, cycle_momentum = true;
  double base_momentum = 0.85, max_momentum = 0.95;
  double factor = 0.1, threshold = 1e-4, min_lr = 0, eps = 1e-8;  // plateau: see plateau.h
  std::int64_t patience = 10, cooldown = 0;
  bool absolute = false;  // plateau: threshold_mode="abs"
};

// Parses KIND[:KEY=VALUE,...], such as "cosine" or "multi-step:milestones=100+200,gamma=0.5". The error names the kind,
// key or value that is wrong, and the valid ones. `own`: further schedules, by name.
Result<LrSchedule> parse_lr_schedule(std::string_view text, std::span<const CustomSchedule> own = {});

// "constant, step, multi-step ..." for help texts.
std::string lr_schedule_kinds(std::span<const CustomSchedule> own = {});

// The learning rate of a parameter group whose own learning rate is `base` (for one-cycle: its largest). `step` counts
// from 1; Python's last_epoch is one less. Steps after the end of one-cycle have its last value; cosine rises again, as
// in Python.
double learning_rate(const LrSchedule& schedule, double base, std::int64_t step);

// One-cycle with cycle_momentum: the momentum of sgd, or beta1 of adam and adamw, in that step.
std::optional<double> cycled_momentum(const LrSchedule& schedule, std::int64_t step);

// True for plateau, whose learning rate depends on the evaluation loss; learning_rate() then returns `base`.
bool is_plateau(const LrSchedule& schedule);

}  // namespace torchbridge::train
