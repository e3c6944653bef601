// The common part of all optimizers: groups, state by parameter, gradients sorted for the fused
// operations.
#pragma once

#include <torchbridge/optimizer.h>

namespace torchbridge::train {

using Tensors = std::vector<at::Tensor>;

class LocalOptimizer : public Optimizer {
 public:
  LocalOptimizer(std::string kind, std::vector<ParameterGroup> groups);

  std::vector<ParameterGroup*> groups() override;
  void zero_grad() override;
  Tensors averaged() const override;
  NamedTensors state() const override;
  std::map<std::string, ElementRange> ranges() const override;
  OptimizerRecord record() const override;
  void load_state(const NamedTensors& state) override { take_state(state, Taken::kCopied); }
  void adopt_state(const NamedTensors& state) override { take_state(state, Taken::kAdopted); }

 protected:
  // A parameter with a gradient, and its state: made at its first step, in the order of make_state.
  struct ParameterState {
    const std::string& name;
    at::Tensor parameter, gradient;
    NamedTensors& state;
  };

  // Throws TrainError.
  void reject_sparse_gradient(const ParameterState& member) const;

 private:
  enum class Taken { kCopied, kAdopted };

  void take_step(const at::Tensor& found_inf) override;
  void take_state(const NamedTensors& state, Taken taken);
  // `members` are of one device and type, as the fused operations require. found_inf is on that
  // device, or empty.
  virtual void update(const OptimizerOptions& options, std::vector<ParameterState>& members,
                      const std::optional<at::Tensor>& found_inf) = 0;
  // The options that this optimizer reads, by Python's names.
  virtual std::map<std::string, double> own_options(const OptimizerOptions& options) const = 0;
  // The state of a parameter before its first step, by kind. The parameter may be on the meta
  // device.
  virtual NamedTensors make_state(const OptimizerOptions& options,
                                  const at::Tensor& parameter) const = 0;

  const std::string kind_;
  std::vector<ParameterGroup> groups_;
  // By group and parameter; kinds with their tensors.
  std::vector<std::vector<NamedTensors>> states_;
};

}  // namespace torchbridge::train
