#include <torchbridge/train/optimizer.h>

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torchbridge/train/errors.h>

#include <map>
#include <sstream>

namespace torchbridge::train {
namespace {

using Tensors = std::vector<at::Tensor>;

class Sgd final : public Optimizer {
 public:
  Sgd(NamedTensors parameters, const SgdOptions& options)
      : Optimizer(std::move(parameters)), options_(options), momentum_(this->parameters().size()) {}

  void step(double learning_rate) override {
    const at::NoGradGuard no_grad;
    // Python treats the buffers as new only when none is there yet.
    bool first = options_.momentum != 0;
    Tensors parameters, gradients, buffers;
    std::vector<std::size_t> indices;
    for (std::size_t i = 0; i < momentum_.size(); ++i) {
      const at::Tensor& parameter = this->parameters()[i].second;
      if (!parameter.grad().defined()) continue;
      indices.push_back(i);
      parameters.push_back(parameter);
      gradients.push_back(parameter.grad());
      if (momentum_[i].defined()) first = false;
    }
    if (parameters.empty()) return;
    if (options_.momentum != 0) {
      for (std::size_t i : indices) {
        at::Tensor& buffer = momentum_[i];
        if (!buffer.defined()) buffer = first ? at::empty_like(this->parameters()[i].second) : make_buffer(i);
        buffers.push_back(buffer);
      }
    }
    at::_fused_sgd_(parameters, gradients, buffers, options_.weight_decay, options_.momentum, learning_rate,
                    options_.dampening, options_.nesterov, /*maximize=*/false, first);
  }

  NamedTensors state() const override {
    NamedTensors state;
    for (std::size_t i = 0; i < momentum_.size(); ++i) {
      if (momentum_[i].defined()) state.emplace_back(parameters()[i].first + ".momentum_buffer", momentum_[i]);
    }
    return state;
  }

 private:
  bool has_state() const override { return options_.momentum != 0; }
  NamedTensors make_state(std::size_t index) override {
    momentum_[index] = make_buffer(index);
    return {{"momentum_buffer", momentum_[index]}};
  }
  at::Tensor make_buffer(std::size_t index) const { return at::zeros_like(parameters()[index].second.detach()); }

  SgdOptions options_;
  Tensors momentum_;
};

class AdamW final : public Optimizer {
 public:
  AdamW(NamedTensors parameters, const AdamWOptions& options)
      : Optimizer(std::move(parameters)), options_(options), moments_(this->parameters().size()) {}

  void step(double learning_rate) override {
    const at::NoGradGuard no_grad;
    Tensors parameters, gradients, averages, squares, steps;
    for (std::size_t i = 0; i < moments_.size(); ++i) {
      const at::Tensor& parameter = this->parameters()[i].second;
      if (!parameter.grad().defined()) continue;
      if (!moments_[i].step.defined()) make_state(i);
      parameters.push_back(parameter);
      gradients.push_back(parameter.grad());
      averages.push_back(moments_[i].average);
      squares.push_back(moments_[i].square);
      steps.push_back(moments_[i].step);
    }
    if (parameters.empty()) return;
    at::_foreach_add_(steps, 1);
    at::_fused_adamw_(parameters, gradients, averages, squares, /*max_exp_avg_sqs=*/Tensors{}, steps, learning_rate,
                      options_.beta1, options_.beta2, options_.weight_decay, options_.epsilon, /*amsgrad=*/false,
                      /*maximize=*/false);
  }

  NamedTensors state() const override {
    NamedTensors state;
    for (std::size_t i = 0; i < moments_.size(); ++i) {
      if (!moments_[i].step.defined()) continue;
      const std::string& name = parameters()[i].first;
      state.emplace_back(name + ".exp_avg", moments_[i].average);
      state.emplace_back(name + ".exp_avg_sq", moments_[i].square);
      state.emplace_back(name + ".step", moments_[i].step);
    }
    return state;
  }

 private:
  struct Moments {
    at::Tensor average, square, step;
  };

  NamedTensors make_state(std::size_t index) override {
    const at::Tensor parameter = parameters()[index].second.detach();
    Moments& moments = moments_[index];
    moments = {at::zeros_like(parameter), at::zeros_like(parameter), at::zeros({}, at::kFloat)};
    return {{"exp_avg", moments.average}, {"exp_avg_sq", moments.square}, {"step", moments.step}};
  }

  AdamWOptions options_;
  std::vector<Moments> moments_;
};

}  // namespace

void Optimizer::zero_grad() {
  for (const auto& [name, parameter] : parameters_) parameter.mutable_grad().reset();
}

void Optimizer::load_state(const NamedTensors& state) {
  const at::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> given(state.begin(), state.end());
  for (std::size_t i = 0; i < parameters_.size() && has_state() && !given.empty(); ++i) {
    const std::string prefix = parameters_[i].first + ".";
    // A parameter that never had a gradient has no state.
    const auto next = given.lower_bound(prefix);
    if (next == given.end() || !next->first.starts_with(prefix)) continue;
    for (auto& [kind, tensor] : make_state(i)) {
      const auto found = given.find(prefix + kind);
      if (found == given.end()) {
        throw TrainError("the optimizer state has no '" + prefix + kind + "': was another --optimizer used?");
      }
      if (found->second.sizes() != tensor.sizes() || found->second.scalar_type() != tensor.scalar_type()) {
        std::ostringstream text;
        text << "optimizer state '" << prefix << kind << "' has shape " << found->second.sizes() << ", expected "
             << tensor.sizes();
        throw TrainError(text.str());
      }
      tensor.copy_(found->second);
      given.erase(found);
    }
  }
  if (!given.empty()) {
    throw TrainError("the optimizer state holds '" + given.begin()->first +
                     "', which this optimizer does not have: was another --optimizer used?");
  }
}

std::unique_ptr<Optimizer> make_sgd(NamedTensors parameters, const SgdOptions& options) {
  return std::make_unique<Sgd>(std::move(parameters), options);
}

std::unique_ptr<Optimizer> make_adamw(NamedTensors parameters, const AdamWOptions& options) {
  return std::make_unique<AdamW>(std::move(parameters), options);
}

}  // namespace torchbridge::train
