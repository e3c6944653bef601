#include <torchbridge/lr_schedule.h>
#include <torchbridge/optimizer.h>

#include "trainer_template/runtime/optim/plateau.h"

namespace torchbridge::train {

LearningRates::LearningRates(const LrSchedule& schedule, Optimizer& optimizer)
    : schedule_(schedule), groups_(optimizer.groups()) {
  for (const ParameterGroup* group : groups_) base_rates_.push_back(group->options.lr);
  if (is_plateau(schedule_)) plateau_ = std::make_unique<Plateau>(schedule_, base_rates_);
}

LearningRates::~LearningRates() = default;

PartNumbers LearningRates::numbers() const { return plateau_->numbers(); }

void LearningRates::load(const SavedNumbers& saved) { plateau_->load(saved); }

void LearningRates::before_step(std::int64_t step) {
  const std::vector<double>& rates = plateau_ ? plateau_->learning_rates() : base_rates_;
  const auto momentum = cycled_momentum(schedule_, step);
  for (std::size_t i = 0; i < rates.size(); ++i) {
    OptimizerOptions& options = groups_[i]->options;
    options.lr = learning_rate(schedule_, rates[i], step);
    if (momentum) options.momentum = options.beta1 = *momentum;
  }
}

// The kind begins after the warm-up.
void LearningRates::evaluated(std::int64_t step, double loss) {
  const bool is_warm = schedule_.scale.count(step) >= static_cast<double>(schedule_.warmup_steps);
  if (plateau_ && is_warm) plateau_->observe(loss);
}

double LearningRates::of_first_group() const { return groups_.front()->options.lr; }

}  // namespace torchbridge::train
