// Optimizers equal to Python's with fused=True, bit for bit. A checkpoint keeps their state by parameter name.
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
  double momentum = 0, dampening = 0;  // sgd
  std::optional<double> weight_decay;  // not set: that of its row in optimizer_kinds()
  bool nesterov = false;               // sgd
  double beta1 = 0.9;                  // adam, adamw
  std::optional<double> beta2;         // adam, adamw; not set: that of the row
  double epsilon = 1e-8;               // adam, adamw
  bool amsgrad = false;                // adam, adamw
  bool maximize = false;
};

// An entry of Python's param_groups. The name is for messages; state is kept by the parameters' names.
struct ParameterGroup {
  std::string name;
  NamedTensors parameters;
  OptimizerOptions options;  // lr and momentum may be changed between steps: that is what a schedule does
};

// Elements [begin, end) of a flattened parameter of `total` elements.
struct ElementRange {
  std::int64_t begin = 0, end = 0, total = 0;
};

// For one thread.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  virtual std::vector<ParameterGroup>& groups() = 0;

  // Updates the parameters that have a gradient, each group by its options. Waits first for the readers of
  // read_until(). If `found_inf` (float32, no dimensions, on the parameters' device) is exactly 1 instead of 0, the
  // step changes nothing: the device decides, and the host does not wait for it.
  void step(const at::Tensor& found_inf = {});
  // The same with this learning rate for all groups.
  void step(double lr);

  // Releases the gradients: the next backward then writes instead of adding.
  virtual void zero_grad() = 0;

  // Registers another thread, or another stream of the GPU, that reads parameters and state: the next step calls `wait`
  // before it changes them.
  void read_until(std::function<void()> wait) { readers_.push_back(std::move(wait)); }

  // The hook for DdpOptions if this optimizer needs another reduction than DDP's own. It refers to the optimizer.
  virtual std::optional<CommHook> comm_hook() { return std::nullopt; }

  // Whether this rank has only the averaged gradients of its shard: their norm is then a collective.
  virtual bool has_own_gradients_only() const { return false; }

  // The tensors whose .grad, if defined, is an averaged gradient: the parameters, or this rank's pieces of them. Call
  // it again after each backward.
  virtual std::vector<at::Tensor> averaged() const = 0;

  // One tensor for each parameter and kind of state: "layers.0.weight.exp_avg". Shares memory with the optimizer; empty
  // before the first step. If state is sharded over ranks (shards() > 1), this rank's shard, flat.
  virtual NamedTensors state() const = 0;
  virtual int shards() const { return 1; }

  // The elements of each parameter whose state this rank keeps: those of state() and load_state().
  virtual std::map<std::string, ElementRange> ranges() const = 0;

  // The kind, and the groups with their current options and all their parameters, those of other ranks included.
  virtual OptimizerRecord record() const { return {}; }

  // The inverse of state(), for the same parameters. A flat tensor with the same number of elements is accepted. Throws
  // TrainError, which names a tensor that is missing, unknown, or of another shape.
  virtual void load_state(const NamedTensors& state) = 0;
  // The same for tensors whose memory has no other user: the optimizer uses them instead of copies if device and
  // strides fit.
  virtual void adopt_state(const NamedTensors& state) { load_state(state); }

 private:
  virtual void take_step(const at::Tensor& found_inf) = 0;

  std::vector<std::function<void()>> readers_;
};

// All throw TrainError for an invalid value, and for a parameter that is in two groups.
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
  double weight_decay = 0, beta2 = 0.999;  // where none is set
};
const std::vector<OptimizerKind>& optimizer_kinds();
// Throws c10::Error if none has this name.
const OptimizerKind& optimizer_kind(const std::string& name);

}  // namespace torchbridge::train
