#include <algorithm>
#include <unordered_map>

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torchbridge/errors.h>
#include <torchbridge/optimizer.h>
#include <torchbridge/process_group.h>

#include "bridge/base/message_text.h"
#include "trainer_template/runtime/backends/c10d_versions.h"

namespace torchbridge::train {
namespace {

// Vector registers and cache lines end at multiples of it: an element of a piece is then computed
// by the same instructions as in the whole parameter, which makes the last bit equal.
constexpr std::int64_t kAlignment = 64;  // bytes

std::int64_t rounded_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Where a parameter is in the flat tensor.
struct FlatParameter {
  std::string name;
  at::Tensor parameter;
  std::int64_t begin = 0;  // in elements
  // This rank's elements of the parameter; equal where it has none.
  std::int64_t own = 0, own_end = 0;
  at::Tensor piece;  // undefined where it has none
};

// Elements of a bucket that lie one after the other and belong to one rank.
struct Segment {
  int owner = 0;
  std::int64_t begin = 0, size = 0;
};

using Future = c10::intrusive_ptr<c10::ivalue::Future>;

bool is_gloo(ProcessGroup& group) { return group.c10d()->getBackendName() == "gloo"; }

class Zero final : public Optimizer {
 public:
  Zero(std::vector<ParameterGroup> groups, ProcessGroup& group,
       const std::function<std::unique_ptr<Optimizer>(std::vector<ParameterGroup>)>& make,
       bool scatters)
      : group_(group), scatters_(scatters) {
    const at::NoGradGuard no_grad;
    lay_out(groups);
    move_parameters();
    auto flat = flat_parameters_.begin();
    for (ParameterGroup& each : groups) {
      auto& names = names_.emplace_back();
      for (const auto& [name, parameter] : each.parameters) names.push_back(name);
      for (std::size_t left = std::exchange(each.parameters, {}).size(); left > 0; --left, ++flat) {
        if (flat->own == flat->own_end) continue;
        flat->piece = flat_.narrow(0, flat->begin + flat->own, flat->own_end - flat->own);
        each.parameters.emplace_back(flat->name, flat->piece);
      }
    }
    inner_ = make(std::move(groups));
  }

  std::vector<ParameterGroup*> groups() override { return inner_->groups(); }

  void zero_grad() override {
    inner_->zero_grad();
    for (const FlatParameter& flat : flat_parameters_) flat.parameter.mutable_grad().reset();
  }

  std::optional<CommHook> comm_hook() override {
    if (!scatters_) return std::nullopt;
    return CommHook{"zero_reduce_scatter_hook",
                    [this](c10d::GradBucket& bucket) { return reduce_scatter(bucket); }};
  }

  bool has_own_gradients_only() const override { return scatters_; }

  std::vector<at::Tensor> averaged() const override {
    if (scatters_) {
      take_pieces_of_gradients();
      return inner_->averaged();
    }
    std::vector<at::Tensor> parameters;
    for (const FlatParameter& flat : flat_parameters_) parameters.push_back(flat.parameter);
    return parameters;
  }

  NamedTensors state() const override { return inner_->state(); }
  int shards() const override { return group_.world_size(); }

  std::map<std::string, ElementRange> ranges() const override {
    std::map<std::string, ElementRange> ranges;
    for (const FlatParameter& flat : flat_parameters_) {
      ranges[flat.name] = {.begin = flat.own, .end = flat.own_end, .total = flat.parameter.numel()};
    }
    return ranges;
  }

  OptimizerRecord record() const override {
    OptimizerRecord record = inner_->record();
    for (std::size_t i = 0; i < record.groups.size(); ++i) record.groups[i].parameters = names_[i];
    return record;
  }

  void load_state(const NamedTensors& state) override { inner_->load_state(flattened(state)); }
  void adopt_state(const NamedTensors& state) override { inner_->adopt_state(flattened(state)); }

 private:
  static NamedTensors flattened(const NamedTensors& state) {
    NamedTensors tensors;
    for (const auto& [name, tensor] : state)
      tensors.emplace_back(name, tensor.dim() == 0 ? tensor : tensor.reshape(-1));
    return tensors;
  }

  void take_step(const at::Tensor& found_inf) override {
    const at::NoGradGuard no_grad;
    take_pieces_of_gradients();
    inner_->step(found_inf);
    gather_parameters();
  }

  void lay_out(const std::vector<ParameterGroup>& groups) {
    std::int64_t end = 0;
    for (const ParameterGroup& group : groups) {
      for (const auto& [name, parameter] : group.parameters) {
        const at::Tensor& first =
            flat_parameters_.empty() ? parameter : flat_parameters_[0].parameter;
        if (parameter.options().dtype() != first.dtype() || parameter.device() != first.device()) {
          throw TrainError(formatted(
              "zero: parameter '{}' has another type or device than '{}'; all must have the same",
              name, flat_parameters_[0].name));
        }
        begins_[parameter.unsafeGetTensorImpl()] = end;
        flat_parameters_.push_back({.name = name, .parameter = parameter, .begin = end});
        end = rounded_up(end + parameter.numel(), kAlignment / parameter.element_size());
      }
    }
    if (flat_parameters_.empty()) throw TrainError("zero: there are no parameters");
    const std::int64_t unit = kAlignment / flat_parameters_[0].parameter.element_size();
    shard_size_ = rounded_up((end + group_.world_size() - 1) / group_.world_size(), unit);
    const std::int64_t start = shard_size_ * group_.rank();
    for (FlatParameter& flat : flat_parameters_) {
      flat.own = std::clamp<std::int64_t>(start - flat.begin, 0, flat.parameter.numel());
      flat.own_end = std::clamp<std::int64_t>(start + shard_size_ - flat.begin, flat.own,
                                              flat.parameter.numel());
    }
  }

  void move_parameters() {
    flat_ = at::zeros({shard_size_ * group_.world_size()},
                      flat_parameters_[0].parameter.options().requires_grad(false));
    for (FlatParameter& flat : flat_parameters_) {
      const at::Tensor view = view_of(flat_, flat);
      view.copy_(flat.parameter.detach());
      flat.parameter.set_data(view);
    }
  }

  // A bucket holds parameters one after the other, in another order than flat_ and without its
  // gaps.
  std::vector<Segment> segments_of(const c10d::GradBucket& bucket) const {
    std::vector<Segment> segments;
    std::int64_t offset = 0;
    for (const at::Tensor& parameter : bucket.getParameters()) {
      const auto found = begins_.find(parameter.unsafeGetTensorImpl());
      if (found == begins_.end())
        throw TrainError("zero: DDP has a parameter that the optimizer does not have");
      std::int64_t size = 0;
      for (std::int64_t done = 0; done < parameter.numel(); done += size) {
        const std::int64_t begin = found->second + done;
        const int owner = static_cast<int>(begin / shard_size_);
        size = std::min(parameter.numel() - done, (owner + 1) * shard_size_ - begin);
        if (segments.empty() || segments.back().owner != owner)
          segments.push_back({owner, offset + done});
        segments.back().size += size;
      }
      offset += parameter.numel();
    }
    return segments;
  }

  // In the bucket's own buffer: elements of other ranks hold undefined values afterwards. c10d's
  // reduce-scatter needs parts of one size, which these are not, so each segment is reduced to its
  // owner.
  Future reduce_scatter(const c10d::GradBucket& bucket) const {
    at::Tensor buffer = bucket.getBuffer();
    if (buffer.is_sparse())
      throw TrainError(
          "zero: a parameter has a sparse gradient, which ZeRO does not support: use sgd without "
          "ZeRO");
    buffer.mul_(1.0 / group_.world_size());  // before the sum, as DDP does
    std::vector<Segment> segments = segments_of(bucket);
    if (segments.empty()) segments.emplace_back();  // of parameters without elements
    std::vector<Future> reductions;
    for (const Segment& segment : segments) {
      std::vector<at::Tensor> part = {buffer.narrow(0, segment.begin, segment.size)};
      c10d::ReduceOptions options;
      options.rootRank = segment.owner;
      reductions.push_back(group_.c10d()->reduce(part, options)->getFuture());
    }
    // Complete when all are, without a thread that waits. On a GPU it carries the streams of the
    // last reduction, which runs after all others.
    Future all = reductions.front();
    for (std::size_t i = 1; i < reductions.size(); ++i) {
      all = all->thenAsync(
          [next = reductions[i]](c10::ivalue::Future& before) {
            before.value();  // throws where it failed
            return next;
          },
          all->elementType());
    }
    return all->then(
        [buffer](c10::ivalue::Future& reduced) {
          reduced.value();
          return c10::IValue(buffer);
        },
        c10::TensorType::get());
  }

  // Makes the pieces' gradients views of the whole gradients.
  void take_pieces_of_gradients() const {
    for (const FlatParameter& flat : flat_parameters_) {
      if (!flat.piece.defined()) continue;
      const at::Tensor gradient = flat.parameter.grad();
      flat.piece.mutable_grad().reset();
      if (!gradient.defined()) continue;
      if (gradient.is_sparse())
        throw TrainError(
            formatted("zero: parameter '{}' has a sparse gradient, which ZeRO does not support: "
                      "use sgd without ZeRO",
                      flat.name));
      flat.piece.mutable_grad() =
          gradient.contiguous().view(-1).narrow(0, flat.own, flat.own_end - flat.own);
    }
  }

  void gather_parameters() {
    const auto& group = group_.c10d();
    if (group_.world_size() == 1) return;
    if (!is_gloo(group_)) {
      at::Tensor own = shard_of(group_.rank());
      group->TORCHBRIDGE_ALL_GATHER_SINGLE(flat_, own)->wait();
      return;
    }
    // gloo's all-gather first copies everything; a broadcast from each rank does not.
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    for (int rank = 0; rank < group_.world_size(); ++rank) {
      std::vector<at::Tensor> shard = {shard_of(rank)};
      c10d::BroadcastOptions options;
      options.rootRank = rank;
      works.push_back(group->broadcast(shard, options));
    }
    for (const auto& work : works) work->wait();
  }

  static at::Tensor view_of(const at::Tensor& whole, const FlatParameter& flat) {
    return whole.narrow(0, flat.begin, flat.parameter.numel()).view(flat.parameter.sizes());
  }
  at::Tensor shard_of(int rank) const { return flat_.narrow(0, shard_size_ * rank, shard_size_); }

  ProcessGroup& group_;
  const bool scatters_;
  std::vector<FlatParameter> flat_parameters_;
  std::vector<std::vector<std::string>> names_;  // by group
  // FlatParameter::begin by parameter.
  std::unordered_map<const c10::TensorImpl*, std::int64_t> begins_;
  std::int64_t shard_size_ = 0;  // elements of a rank's shard
  at::Tensor flat_;              // the parameters
  std::unique_ptr<Optimizer> inner_;
};

bool scatters(GradientAverage average, ProcessGroup& group) {
  if (average != GradientAverage::kAuto) return average == GradientAverage::kReduceScatter;
  return !is_gloo(group);
}

}  // namespace

std::unique_ptr<Optimizer> make_zero(
    std::vector<ParameterGroup> groups, ProcessGroup& group,
    const std::function<std::unique_ptr<Optimizer>(std::vector<ParameterGroup>)>& make,
    GradientAverage average) {
  return std::make_unique<Zero>(std::move(groups), group, make, scatters(average, group));
}

}  // namespace torchbridge::train
