// Optimizers equal to Python's with fused=True, bit for bit, with state that goes into a checkpoint by parameter name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torchbridge/train/named_tensors.h>

namespace torchbridge::train {

// One thread. Parameters without a gradient are left alone by step().
class Optimizer {
 public:
  explicit Optimizer(NamedTensors parameters) : parameters_(std::move(parameters)) {}
  virtual ~Optimizer() = default;

  virtual void step(double learning_rate) = 0;

  // Drops the gradients, which makes the next backward write instead of add.
  void zero_grad();

  // One tensor for each parameter and kind of state: "layers.0.weight.exp_avg". Shares memory with the optimizer; empty
  // where no step was done yet.
  virtual NamedTensors state() const = 0;

  // The inverse, for the same parameters. Throws TrainError, which names a tensor that is missing, not known, or of
  // another shape.
  void load_state(const NamedTensors& state);

 protected:
  const NamedTensors& parameters() const { return parameters_; }

 private:
  // Makes the state that parameter `index` has after its first step, and returns it by kind.
  virtual NamedTensors make_state(std::size_t index) = 0;
  virtual bool has_state() const { return true; }

  NamedTensors parameters_;
};

struct SgdOptions {
  double momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
};

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.01;
};

std::unique_ptr<Optimizer> make_sgd(NamedTensors parameters, const SgdOptions& options);
std::unique_ptr<Optimizer> make_adamw(NamedTensors parameters, const AdamWOptions& options);

}  // namespace torchbridge::train
