// torch.optim.SGD(fused=True).
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/zeros_like.h>
#include <torchbridge/errors.h>

#include "bridge/base/message_text.h"
#include "trainer_template/runtime/optim/local_optimizer.h"

namespace torchbridge::train {
namespace {

class Sgd final : public LocalOptimizer {
 public:
  explicit Sgd(std::vector<ParameterGroup> groups) : LocalOptimizer("sgd", std::move(groups)) {}

 private:
  void update(const OptimizerOptions& options, std::vector<ParameterState>& members,
              const std::optional<at::Tensor>& found_inf) override {
    // A parameter's first step copies its gradient into the buffer, whatever the dampening. After a
    // skipped first step the buffer holds zeros, which gives the same result without dampening.
    // With dampening it would not, so the host has to wait and see whether the step is skipped.
    if (options.dampening != 0 && found_inf && found_inf->item<float>() != 0) return;
    Lists first, later;
    for (ParameterState& member : members) {
      if (member.gradient.is_sparse()) {
        update_sparse(options, member, found_inf);
        continue;
      }
      Lists& lists = options.momentum != 0 && member.state.empty() ? first : later;
      lists.parameters.push_back(member.parameter);
      lists.gradients.push_back(member.gradient);
      if (options.momentum == 0) continue;
      if (member.state.empty()) member.state = make_state(options, member.parameter.detach());
      lists.buffers.push_back(member.state[0].second);
    }
    update_dense(options, first, true, found_inf);
    update_dense(options, later, false, found_inf);
  }

  std::map<std::string, double> own_options(const OptimizerOptions& options) const override {
    return {{"lr", options.lr},
            {"momentum", options.momentum},
            {"dampening", options.dampening},
            {"weight_decay", *options.weight_decay},
            {"nesterov", options.nesterov},
            {"maximize", options.maximize}};
  }

  // Also without momentum: a schedule may give one, and a later start may have one again. As in
  // Python the state that was loaded then stays as it is.
  NamedTensors make_state(const OptimizerOptions&, const at::Tensor& parameter) const override {
    return {{"momentum_buffer", at::zeros_like(parameter)}};
  }

  struct Lists {
    Tensors parameters, gradients, buffers;
  };

  static void update_dense(const OptimizerOptions& options, Lists& lists, bool is_first,
                           const std::optional<at::Tensor>& found_inf) {
    if (lists.parameters.empty()) return;
    at::_fused_sgd_(lists.parameters, lists.gradients, lists.buffers, *options.weight_decay,
                    options.momentum, options.lr, options.dampening, options.nesterov,
                    options.maximize, is_first,
                    /*grad_scale=*/std::nullopt, found_inf);
  }

  // Python's fused=True rejects sparse gradients; its plain SGD computes this.
  static void update_sparse(const OptimizerOptions& options, ParameterState& member,
                            const std::optional<at::Tensor>& found_inf) {
    if (options.momentum != 0 || *options.weight_decay != 0) {
      throw TrainError(
          formatted("parameter '{}' has a sparse gradient: sgd supports it only without momentum "
                    "and weight decay; put the parameter into a group with both at 0",
                    member.name));
    }
    if (found_inf && found_inf->item<float>() != 0)
      return;  // no fused operation checks it on the device
    member.parameter.add_(member.gradient, options.maximize ? options.lr : -options.lr);
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(std::vector<ParameterGroup> groups) {
  return std::make_unique<Sgd>(std::move(groups));
}

}  // namespace torchbridge::train
