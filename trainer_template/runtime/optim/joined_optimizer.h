// Several optimizers as one, for a run that gives them learning rates and saves them together.
#pragma once

#include <map>
#include <vector>

#include <torchbridge/optimizer.h>

namespace torchbridge::train {

// The state of all in one: their parameters have different names. They must outlive it, and are
// also used alone.
class JoinedOptimizer final : public Optimizer {
 public:
  // Throws TrainError for a parameter that two of them have, and if ZeRO shards the state of some
  // but not of all.
  explicit JoinedOptimizer(std::vector<Optimizer*> all);

  std::vector<ParameterGroup*> groups() override;
  void zero_grad() override;
  void read_until(std::function<void()> wait) override;
  bool has_own_gradients_only() const override { return all_.front()->has_own_gradients_only(); }
  std::vector<at::Tensor> averaged() const override;
  NamedTensors state() const override;
  int shards() const override { return all_.front()->shards(); }
  std::map<std::string, ElementRange> ranges() const override;
  // The kind is empty if they are of several.
  OptimizerRecord record() const override;
  void load_state(const NamedTensors& state) override;
  void adopt_state(const NamedTensors& state) override;

 private:
  void take_step(const at::Tensor& found_inf) override;
  std::vector<NamedTensors> divided(const NamedTensors& state) const;

  std::vector<Optimizer*> all_;
};

}  // namespace torchbridge::train
