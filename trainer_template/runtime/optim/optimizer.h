// Optimizers equal to Python's with fused=True, bit for bit, with state that goes into a checkpoint by parameter name.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer_template/runtime/base/optimizer_record.h"
#include "trainer_template/runtime/ddp/comm_hooks.h"
#include "trainer_template/runtime/tensors/named_tensors.h"

namespace torchbridge::train {

// Fields and defaults are those of Python's torch.optim; each optimizer reads its own.
struct OptimizerOptions {
  double lr = 1e-3;
  double momentum = 0, dampening = 0;                 // sgd
  std::optional<double> weight_decay;                 // not set: that of its row in optimizer_kinds()
  bool nesterov = false;                              // sgd
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  // adam, adamw
  bool amsgrad = false;                               // adam, adamw
  bool maximize = false;
};

// An entry of Python's param_groups. The name is for messages; state is kept by the names of parameters.
struct ParameterGroup {
  std::string name;
  NamedTensors parameters;
  OptimizerOptions options;  // lr and momentum may be changed between steps: that is what a schedule does
};

// Elements [begin, end) of a flattened parameter of `total` elements.
struct ElementRange {
  std::int64_t begin = 0, end = 0, total = 0;
};

// One thread.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  virtual std::vector<ParameterGroup>& groups() = 0;

  // Updates the parameters that have a gradient, each group by its options, and leaves the others alone. Waits first
  // for those who read them. With `found_inf` (float32, no dimensions, on the parameters' device) holding exactly 1
  // instead of 0 nothing changes, as if there had been no step: the device decides, and the host does not wait for it.
  void step(const at::Tensor& found_inf = {});
  // The same after giving all groups this learning rate.
  void step(double lr);

  // Drops the gradients, which makes the next backward write instead of add.
  virtual void zero_grad() = 0;

  // Another thread, or another stream of the GPU, reads parameters and state: the next step calls this before it
  // changes them.
  void read_until(std::function<void()> wait) { readers_.push_back(std::move(wait)); }

  // What DDP reduces gradients with where this optimizer wants another reduction than DDP's own; for DdpOptions. It
  // refers to the optimizer.
  virtual std::optional<CommHook> comm_hook() { return std::nullopt; }

  // Whether this rank has the averaged gradients of its part of the parameters alone: their norm takes all ranks then.
  virtual bool has_own_gradients_only() const { return false; }

  // The tensors whose .grad, if defined, holds averaged gradients: the parameters, or this rank's pieces of them, which
  // are to be asked for after each backward.
  virtual std::vector<at::Tensor> averaged() const = 0;

  // One tensor for each parameter and kind of state: "layers.0.weight.exp_avg". Shares memory with the optimizer; empty
  // where no step was done yet. Where state is spread over ranks (shards() > 1), this rank's part, flat.
  virtual NamedTensors state() const = 0;
  virtual int shards() const { return 1; }

  // The part of each parameter that state() and load_state() of this rank are about.
  virtual std::map<std::string, ElementRange> ranges() const = 0;

  // Its kind, its groups with the options of this moment and all their parameters, also those of other ranks.
  virtual OptimizerRecord record() const { return {}; }

  // The inverse of state(), for the same parameters; a tensor of as many elements in one dimension will do. Throws
  // TrainError, which names a tensor that is missing, not known, or of another shape.
  virtual void load_state(const NamedTensors& state) = 0;
  // The same of tensors whose memory is nobody else's: the optimizer goes on with them, where they are as it would make
  // them, instead of copies.
  virtual void adopt_state(const NamedTensors& state) { load_state(state); }

 private:
  virtual void take_step(const at::Tensor& found_inf) = 0;

  std::vector<std::function<void()>> readers_;
};

// All throw TrainError for a value that cannot be, and for a parameter that is given twice.
std::unique_ptr<Optimizer> make_sgd(std::vector<ParameterGroup> groups);
std::unique_ptr<Optimizer> make_adam(std::vector<ParameterGroup> groups);
std::unique_ptr<Optimizer> make_adamw(std::vector<ParameterGroup> groups);

// With one group.
std::unique_ptr<Optimizer> make_sgd(NamedTensors parameters, const OptimizerOptions& options);
std::unique_ptr<Optimizer> make_adam(NamedTensors parameters, const OptimizerOptions& options);
std::unique_ptr<Optimizer> make_adamw(NamedTensors parameters, const OptimizerOptions& options);

// An optimizer by the name that --optimizer takes.
struct OptimizerKind {
  std::string name;
  std::unique_ptr<Optimizer> (*make)(std::vector<ParameterGroup> groups);
  double weight_decay = 0;  // where none is set
};
const std::vector<OptimizerKind>& optimizer_kinds();
// REQUIRES: one of them has this name.
const OptimizerKind& optimizer_kind(const std::string& name);

}  // namespace torchbridge::train
