// The learning rate of each step: Python's torch.optim.lr_scheduler in closed form.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <torchbridge/part.h>

#include "bridge/base/result.h"

namespace torchbridge::train {

struct LrKind;
class Optimizer;
struct ParameterGroup;
class Plateau;

// How optimizer steps count where an option is given in steps (--lr-schedule, --warmup-steps,
// --max-steps): as steps of the global batch with which the run began. A start with another global
// batch begins a new scale.
struct StepScale {
  std::int64_t first_step = 0;  // optimizer steps done when the scale began
  double first_count = 0;       // what they count
  double each = 1;              // what each later step counts

  double count(std::int64_t step) const {
    return first_count + static_cast<double>(step - first_step) * each;
  }
  bool operator==(const StepScale&) const = default;
};

// A schedule that the program adds: the factor of each group's learning rate, as the lambda of
// Python's LambdaLR. `step` counts from 0 after the warm-up; `total` is the number of steps after
// the warm-up. Both are whole numbers as long as the run has one global batch (StepScale).
struct CustomSchedule {
  std::string name;  // instead of KIND; it must not contain ':'
  std::function<double(double step, double total)> factor;
};

// Each kind reads its own fields; names and defaults are Python's. docs/use/optimizers.md has the
// table.
struct LrSchedule {
  const LrKind* kind = nullptr;                               // nullptr: constant, or `own`
  std::function<double(double step, double total)> own = {};  // CustomSchedule::factor
  StepScale scale = {};  // all numbers of steps below are counted by it
  // LinearLR(start_factor=1/warmup_steps, total_iters=warmup_steps-1); the kind then starts at its
  // step 0.
  std::int64_t warmup_steps = 0;
  double total_steps = 0;  // warm-up included; cosine, polynomial and one-cycle end there

  std::int64_t step_size = 30;                                      // step
  std::vector<std::int64_t> milestones;                             // multi-step: ascending
  double gamma = 0.1;                                               // step, multi-step
  double eta_min = 0;                                               // cosine
  double power = 1;                                                 // polynomial
  double pct_start = 0.3, div_factor = 25, final_div_factor = 1e4;  // one-cycle
  bool linear = false, three_phase = false, cycle_momentum = true;
  double base_momentum = 0.85, max_momentum = 0.95;
  double factor = 0.1, threshold = 1e-4, min_lr = 0,
         eps = 1e-8;  // plateau: ReduceLROnPlateau(mode="min")
  std::int64_t patience = 10, cooldown = 0;
  bool absolute = false;  // plateau: threshold_mode="abs"
};

// Parses KIND[:KEY=VALUE,...], such as "cosine" or "multi-step:milestones=100+200,gamma=0.5". The
// error names the kind, key or value that is wrong, and the valid ones. `own`: further schedules,
// by name.
Result<LrSchedule> parse_lr_schedule(std::string_view text,
                                     std::span<const CustomSchedule> own = {});

// "constant, step, multi-step ..." for help texts.
std::string lr_schedule_kinds(std::span<const CustomSchedule> own = {});

// The learning rate of a parameter group whose own learning rate is `base` (for one-cycle: its
// largest). `step` is the optimizer's, from 1; in Python, last_epoch is one less. Steps after the
// end of one-cycle have its last value; cosine rises again, as in Python.
double learning_rate(const LrSchedule& schedule, double base, std::int64_t step);

// One-cycle with cycle_momentum: the momentum of sgd, or beta1 of adam and adamw, in that step.
std::optional<double> cycled_momentum(const LrSchedule& schedule, std::int64_t step);

// True for plateau, whose learning rate depends on the evaluation loss; learning_rate() then
// returns `base`.
bool is_plateau(const LrSchedule& schedule);

// Whether cycled_momentum() gives one.
bool cycles_momentum(const LrSchedule& schedule);

// Sets the learning rate of each step in the optimizer's parameter groups, as Python's
// LRScheduler.step() does. Gives the same rates on all ranks.
class LearningRates final : public Part {
 public:
  // The schedule scales the learning rate that each group has now. `optimizer` must outlive this.
  LearningRates(const LrSchedule& schedule, Optimizer& optimizer);
  ~LearningRates() override;

  std::string name() const override { return plateau_ ? "plateau" : ""; }
  PartNumbers numbers() const override;
  void load(const SavedNumbers& saved) override;
  // Sets the learning rates, and with one-cycle the momentum too.
  void before_step(std::int64_t step) override;
  // A plateau schedule uses the loss, others ignore it.
  void evaluated(std::int64_t step, double loss) override;

  double of_first_group() const;

 private:
  LrSchedule schedule_;
  std::vector<ParameterGroup*> groups_;
  std::vector<double> base_rates_;  // of the groups
  std::unique_ptr<Plateau> plateau_;
};

}  // namespace torchbridge::train
