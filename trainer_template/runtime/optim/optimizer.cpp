#include "trainer_template/runtime/optim/optimizer.h"

namespace torchbridge::train {
namespace {

std::vector<ParameterGroup> one_group(NamedTensors parameters, const OptimizerOptions& options) {
  return {{.name = "all", .parameters = std::move(parameters), .options = options}};
}

}  // namespace

void Optimizer::step(const at::Tensor& found_inf) {
  for (const auto& wait : readers_) wait();
  readers_.clear();
  take_step(found_inf);
}

void Optimizer::step(double lr) {
  for (ParameterGroup& group : groups()) group.options.lr = lr;
  step();
}

double default_weight_decay(const std::string& kind) { return kind == "adamw" ? 0.01 : 0; }

std::unique_ptr<Optimizer> make_sgd(NamedTensors parameters, const OptimizerOptions& options) {
  return make_sgd(one_group(std::move(parameters), options));
}

std::unique_ptr<Optimizer> make_adam(NamedTensors parameters, const OptimizerOptions& options) {
  return make_adam(one_group(std::move(parameters), options));
}

std::unique_ptr<Optimizer> make_adamw(NamedTensors parameters, const OptimizerOptions& options) {
  return make_adamw(one_group(std::move(parameters), options));
}

}  // namespace torchbridge::train
