#include "trainer_template/runtime/optim/learning_rates.h"

namespace torchbridge::train {

LearningRates::LearningRates(const LrSchedule& schedule, Optimizer& optimizer, std::optional<PlateauState>& state)
    : schedule_(schedule), optimizer_(optimizer) {
  for (const ParameterGroup& group : optimizer_.groups()) base_rates_.push_back(group.options.lr);
  if (is_plateau(schedule_)) plateau_.emplace(schedule_, base_rates_, state);
}

double LearningRates::set(std::int64_t step) {
  const std::vector<double>& rates = plateau_ ? plateau_->learning_rates() : base_rates_;
  const auto momentum = cycled_momentum(schedule_, step);
  for (std::size_t i = 0; i < rates.size(); ++i) {
    OptimizerOptions& options = optimizer_.groups()[i].options;
    options.lr = learning_rate(schedule_, rates[i], step);
    if (momentum) options.momentum = options.beta1 = *momentum;
  }
  return optimizer_.groups().front().options.lr;
}

void LearningRates::observe(double eval_loss) {
  if (plateau_) plateau_->observe(eval_loss);
}

}  // namespace torchbridge::train
