// torch.optim.Adam and AdamW (fused=True): Adam adds weight decay to the gradient, AdamW to the
// parameter.
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "trainer_template/runtime/optim/local_optimizer.h"

namespace torchbridge::train {
namespace {

class Adam final : public LocalOptimizer {
 public:
  Adam(std::vector<ParameterGroup> groups, bool decoupled)
      : LocalOptimizer(decoupled ? "adamw" : "adam", std::move(groups)), decoupled_(decoupled) {}

 private:
  void update(const OptimizerOptions& options, std::vector<ParameterState>& members,
              const std::optional<at::Tensor>& found_inf) override {
    Tensors parameters, gradients, averages, squares, largest, steps;
    for (ParameterState& member : members) {
      reject_sparse_gradient(member);
      if (member.state.empty()) member.state = make_state(options, member.parameter.detach());
      parameters.push_back(member.parameter);
      gradients.push_back(member.gradient);
      averages.push_back(member.state[0].second);
      squares.push_back(member.state[1].second);
      steps.push_back(member.state[2].second);
      if (options.amsgrad) largest.push_back(member.state[3].second);
    }
    if (found_inf)
      at::_foreach_add_(steps, at::rsub(*found_inf, 1));  // a skipped step does not count
    else
      at::_foreach_add_(steps, 1);
    const auto fused = [&](auto operation) {
      operation(parameters, gradients, averages, squares, largest, steps, options.lr, options.beta1,
                *options.beta2, *options.weight_decay, options.epsilon, options.amsgrad,
                options.maximize, /*grad_scale=*/std::nullopt, found_inf);
    };
    if (decoupled_) {
      fused([](auto&&... arguments) { at::_fused_adamw_(arguments...); });
    } else {
      fused([](auto&&... arguments) { at::_fused_adam_(arguments...); });
    }
  }

  std::map<std::string, double> own_options(const OptimizerOptions& options) const override {
    return {{"lr", options.lr},
            {"beta1", options.beta1},
            {"beta2", *options.beta2},
            {"eps", options.epsilon},
            {"weight_decay", *options.weight_decay},
            {"amsgrad", options.amsgrad},
            {"maximize", options.maximize}};
  }

  NamedTensors make_state(const OptimizerOptions& options,
                          const at::Tensor& parameter) const override {
    NamedTensors state = {{"exp_avg", at::zeros_like(parameter)},
                          {"exp_avg_sq", at::zeros_like(parameter)},
                          {"step", at::zeros({}, parameter.options().dtype(at::kFloat))}};
    if (options.amsgrad) state.emplace_back("max_exp_avg_sq", at::zeros_like(parameter));
    return state;
  }

  const bool decoupled_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adam(std::vector<ParameterGroup> groups) {
  return std::make_unique<Adam>(std::move(groups), false);
}

std::unique_ptr<Optimizer> make_adamw(std::vector<ParameterGroup> groups) {
  return std::make_unique<Adam>(std::move(groups), true);
}

}  // namespace torchbridge::train
