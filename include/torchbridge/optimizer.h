// Optimizers equal to Python's with fused=True, bit for bit; parameter groups, ZeRO, gradient
// clipping and loss scaling.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torchbridge/ddp.h>
#include <torchbridge/lr_schedule.h>
#include <torchbridge/model_tensors.h>
#include <torchbridge/part.h>
#include <torchbridge/train_state.h>

namespace torchbridge::train {

class ProcessGroup;

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

// An entry of Python's param_groups. The name is for messages; state is kept by the parameters'
// names.
struct ParameterGroup {
  std::string name;
  NamedTensors parameters;
  // Lr and momentum may be changed between steps: that is what a schedule does.
  OptimizerOptions options;
};

// Elements [begin, end) of a flattened parameter of `total` elements.
struct ElementRange {
  std::int64_t begin = 0, end = 0, total = 0;
};

// For one thread.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Valid as long as the optimizer.
  virtual std::vector<ParameterGroup*> groups() = 0;

  // Updates the parameters that have a gradient, each group by its options. Waits first for the
  // readers of read_until(). If `found_inf` (float32, no dimensions, on the parameters' device) is
  // exactly 1 instead of 0, the step changes nothing: the device decides, and the host does not
  // wait for it.
  void step(const at::Tensor& found_inf = {});
  // The same with this learning rate for all groups.
  void step(double lr);

  // Releases the gradients: the next backward then writes instead of adding.
  virtual void zero_grad() = 0;

  // Registers another thread, or another stream of the GPU, that reads parameters and state: the
  // next step calls `wait` before it changes them.
  virtual void read_until(std::function<void()> wait) { readers_.push_back(std::move(wait)); }

  // The hook for DdpOptions if this optimizer needs another reduction than DDP's own. It refers to
  // the optimizer.
  virtual std::optional<CommHook> comm_hook() { return std::nullopt; }

  // Whether this rank has only the averaged gradients of its shard: their norm is then a
  // collective.
  virtual bool has_own_gradients_only() const { return false; }

  // The tensors whose .grad, if defined, is an averaged gradient: the parameters, or this rank's
  // pieces of them. Call it again after each backward.
  virtual std::vector<at::Tensor> averaged() const = 0;

  // One tensor for each parameter and kind of state: "layers.0.weight.exp_avg". Shares memory with
  // the optimizer; empty before the first step. If state is sharded over ranks (shards() > 1), this
  // rank's shard, flat.
  virtual NamedTensors state() const = 0;
  virtual int shards() const { return 1; }

  // The elements of each parameter whose state this rank keeps: those of state() and load_state().
  virtual std::map<std::string, ElementRange> ranges() const = 0;

  // The kind, and the groups with their current options and all their parameters, those of other
  // ranks included.
  virtual OptimizerRecord record() const { return {}; }

  // The inverse of state(), for the same parameters. A flat tensor with the same number of elements
  // is accepted. Throws TrainError, which names a tensor that is missing, unknown, or of another
  // shape.
  virtual void load_state(const NamedTensors& state) = 0;
  // The same for tensors whose memory has no other user: the optimizer uses them instead of copies
  // if device and strides fit.
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
  bool has_momentum = true;                // it uses OptimizerOptions::momentum
};
const std::vector<OptimizerKind>& optimizer_kinds();
// Throws c10::Error if none has this name.
const OptimizerKind& optimizer_kind(const std::string& name);

// Which parameters have no weight decay.
struct DecayRule {
  // No decay for parameters of at most one dimension: biases and scales of norms.
  bool exclude_1d = false;
  // Nor for those whose name matches one of these shell patterns: "*.bias", "embed*".
  std::vector<std::string> excluded;
};

// One group "decay" with the options as given, and, if the rule excludes any parameter, "no_decay"
// with weight_decay 0. A group keeps the order of parameters. Throws TrainError for a pattern that
// no parameter matches, as a misspelt one.
std::vector<ParameterGroup> groups_by_decay(const NamedTensors& parameters,
                                            const OptimizerOptions& options, const DecayRule& rule);

// How the gradients of ZeRO are averaged.
enum class GradientAverage {
  kAuto,           // kDdp on gloo, for results equal bit for bit; kReduceScatter on other backends
  kDdp,            // DDP's all-reduce: all ranks have all gradients
  kReduceScatter,  // each rank gets the gradients of its shard alone, bucket by bucket in backward:
                   // half the traffic
};

// ZeRO stage 1: each rank keeps the optimizer's state for its shard of the parameters, updates that
// shard, and receives the others from their ranks.
//
// Moves all parameters into one contiguous tensor, in their order, each at a multiple of 64 bytes.
// Rank r owns the r-th of world_size equal shards; a shard may end within a parameter (Rajbhandari
// et al. 2020, section 5.1). `make` is called with the same groups, in which each parameter is
// replaced by this rank's flat piece of it, or removed where the rank owns nothing of it. The
// parameters keep their names, shapes and values but become contiguous: make DDP after this, with
// {.comm_hook = optimizer->comm_hook()}, and destroy it before this. The group must outlive both.
// With kDdp, results equal those of the unsharded optimizer bit for bit: sums are the same, and
// each element is updated on its own. With kReduceScatter that holds for two ranks without
// clipping; more ranks sum in another order.
// A parameter without a gradient after backward is not changed.
// Collective in step(). Throws TrainError for parameters of several types or devices, which it
// names.
std::unique_ptr<Optimizer> make_zero(
    std::vector<ParameterGroup> groups, ProcessGroup& group,
    const std::function<std::unique_ptr<Optimizer>(std::vector<ParameterGroup>)>& make,
    GradientAverage average = GradientAverage::kAuto);

// Of torch.nn.utils.clip_grad_norm_.
struct ClipOptions {
  double max_norm = 1;   // infinity: the gradients are measured and left as they are
  double norm_type = 2;  // above 0; infinity for the largest absolute value
  // Throw TrainError instead of scaling by a norm that is NaN or infinite.
  bool error_if_nonfinite = false;
};

// torch.nn.utils.clip_grad_norm_, bit for bit. Scales the gradients of all parameters so that their
// norm, as one vector, is at most max_norm. Returns the norm before that (float, no dimensions).
// The order of parameters decides the last bit: Python programs give them in the model's order.
// Parameters without a gradient are skipped; with no gradient at all the norm is 0, on the device
// of the first parameter.
at::Tensor clip_grad_norm(const std::vector<at::Tensor>& parameters, const ClipOptions& options);

// The same where each rank holds another shard of the gradients (ZeRO), on the group's device; a
// rank may hold none. Collective. The sum over ranks is in float64, so the norm may differ from the
// one above in its last bit.
at::Tensor clip_grad_norm(const std::vector<at::Tensor>& parameters, const ClipOptions& options,
                          ProcessGroup& group);

// What a training run does with the averaged gradients of each step.
struct GradientClipping {
  double max_norm = 0;  // 0: no clipping
  // Compute the norm without clipping too; not possible with sparse gradients.
  bool is_measured = false;
  // In the model's order; empty: those of the optimizer. Not used with
  // optimizer.has_own_gradients_only().
  std::vector<at::Tensor> parameters;
};

// The same for the gradients that an optimizer is about to use. Returns an undefined tensor if they
// are neither clipped nor measured. Finite gradients may have a norm that overflows: if they are
// clipped, NaN is then added to `found_inf` (float, no dimensions), on its device. Collective with
// optimizer.has_own_gradients_only().
at::Tensor clip_grad_norm(ProcessGroup& group, const Optimizer& optimizer,
                          const GradientClipping& clipping, const at::Tensor& found_inf);

struct GradScalerOptions {
  bool enabled = true;  // false: losses are not scaled, and gradients are only checked
  bool checks = true;   // false, where not enabled: nor that, because the norm by which they are
                        // clipped shows it
  double init_scale = 65536;
  double growth_factor = 2, backoff_factor = 0.5;
  std::int64_t growth_interval = 2000;  // steps without overflow until the scale grows
};

// Loss scaling for float16: torch.amp.GradScaler, with all values on the device. For one thread.
// For each step: scale(loss).backward(), average the gradients, unscale(), clip, sum the results of
// unscale() over the ranks, and pass sum.ne(0).to(at::kFloat), because the sum may be above 1 or
// NaN, to the optimizer's step() and to update(). Only numbers() waits for the device.
class GradScaler final : public Part {
 public:
  // Throws TrainError for a growth factor of at most 1 or a backoff factor of at least 1.
  GradScaler(const GradScalerOptions& options, c10::Device device);

  std::string name() const override { return options_.enabled ? "grad_scaler" : ""; }
  // The other entries of Python's state_dict are options here.
  PartNumbers numbers() const override;
  // Does nothing if the state began with another init_scale: that of this scaler was asked for.
  void load(const SavedNumbers& saved) override;

  // The loss times the scale, on the scaler's device.
  at::Tensor scale(const at::Tensor& loss) const;

  // Divides the averaged gradients by the scale; call it once in a step. Returns a number above 0
  // if one of this rank's gradients was infinite or NaN, else 0: float32, no dimensions. Python
  // passes it to fused optimizers in the same way.
  at::Tensor unscale(Optimizer& optimizer) const;

  // Backs off if found_inf, the same on all ranks, is not 0; grows after growth_interval steps in a
  // row with 0.
  void update(const at::Tensor& found_inf);

 private:
  GradScalerOptions options_;
  at::Tensor scale_;           // float32, no dimensions
  at::Tensor growth_tracker_;  // int32, no dimensions
};

}  // namespace torchbridge::train
