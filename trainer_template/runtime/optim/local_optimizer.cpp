#include "trainer_template/runtime/optim/local_optimizer.h"

#include <set>
#include <sstream>

#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>
#include <torchbridge/errors.h>

#include "bridge/base/message_text.h"
#include "trainer_template/runtime/tensors/tensor_lists.h"

namespace torchbridge::train {
namespace {

void check(const ParameterGroup& group, bool good, const std::string& what) {
  if (!good) throw TrainError(formatted("optimizer, parameter group '{}': {}", group.name, what));
}

void check_options(const ParameterGroup& group) {
  const OptimizerOptions& options = group.options;
  // Each condition is false for NaN too.
  check(group, options.lr >= 0, "the learning rate must be at least 0");
  check(group, *options.weight_decay >= 0, "the weight decay must be at least 0");
  check(group, options.momentum >= 0, "the momentum must be at least 0");
  check(group, !options.nesterov || (options.momentum > 0 && options.dampening == 0),
        "nesterov needs a momentum above 0 and no dampening");
  check(group, options.beta1 >= 0 && options.beta1 < 1, "beta1 must be at least 0 and below 1");
  check(group, *options.beta2 >= 0 && *options.beta2 < 1, "beta2 must be at least 0 and below 1");
  check(group, options.epsilon >= 0, "epsilon must be at least 0");
}

TrainError wrong_shape(const std::string& name, const at::Tensor& given,
                       const at::Tensor& expected) {
  std::ostringstream text;
  text << "optimizer state '" << name << "' has shape " << given.sizes() << " and type "
       << given.scalar_type() << ", expected " << expected.sizes() << " and "
       << expected.scalar_type();
  return TrainError(text.str());
}

// The values in a tensor with the layout of `expected`, which is on the meta device: `values`
// itself if `adopt` and they fit, else a copy.
at::Tensor taken_as(const at::Tensor& expected, const at::Tensor& values, c10::Device device,
                    bool adopt) {
  if (adopt && values.device() == device && values.strides() == expected.strides()) return values;
  return at::empty_like(expected, expected.options().device(device)).copy_(values);
}

}  // namespace

LocalOptimizer::LocalOptimizer(std::string kind, std::vector<ParameterGroup> groups)
    : kind_(std::move(kind)), groups_(std::move(groups)) {
  const OptimizerKind& defaults = optimizer_kind(kind_);
  std::map<std::string, std::string> group_of;
  for (ParameterGroup& group : groups_) {
    if (!group.options.weight_decay) group.options.weight_decay = defaults.weight_decay;
    if (!group.options.beta2) group.options.beta2 = defaults.beta2;
    check_options(group);
    states_.emplace_back(group.parameters.size());
    for (const auto& [name, parameter] : group.parameters) {
      const auto [other, fresh] = group_of.emplace(name, group.name);
      check(group, fresh, formatted("parameter '{}' is also in group '{}'", name, other->second));
    }
  }
}

void LocalOptimizer::reject_sparse_gradient(const ParameterState& member) const {
  if (!member.gradient.is_sparse()) return;
  throw TrainError(
      formatted("parameter '{}' has a sparse gradient, which {} does not support: use sgd",
                member.name, kind_));
}

void LocalOptimizer::take_step(const at::Tensor& found_inf) {
  const at::NoGradGuard no_grad;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    std::vector<ParameterState> members;
    for (std::size_t i = 0; i < groups_[g].parameters.size(); ++i) {
      const auto& [name, parameter] = groups_[g].parameters[i];
      const at::Tensor gradient = parameter.grad();
      if (gradient.defined()) members.push_back({name, parameter, gradient, states_[g][i]});
    }
    const auto tensor_of = [](const ParameterState& member) -> const at::Tensor& {
      return member.parameter;
    };
    for (auto& list : by_device_and_type(std::move(members), tensor_of)) {
      std::optional<at::Tensor> flag;
      if (found_inf.defined()) flag = found_inf.to(list[0].parameter.device());
      update(groups_[g].options, list, flag);
    }
  }
}

std::vector<ParameterGroup*> LocalOptimizer::groups() {
  std::vector<ParameterGroup*> all;
  for (ParameterGroup& group : groups_) all.push_back(&group);
  return all;
}

void LocalOptimizer::zero_grad() {
  for (const at::Tensor& parameter : averaged()) parameter.mutable_grad().reset();
}

Tensors LocalOptimizer::averaged() const {
  Tensors all;
  for (const ParameterGroup& group : groups_) {
    for (const auto& [name, parameter] : group.parameters) all.push_back(parameter);
  }
  return all;
}

NamedTensors LocalOptimizer::state() const {
  NamedTensors all;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    for (std::size_t i = 0; i < states_[g].size(); ++i) {
      for (const auto& [kind, tensor] : states_[g][i]) {
        all.emplace_back(groups_[g].parameters[i].first + "." + kind, tensor);
      }
    }
  }
  return all;
}

std::map<std::string, ElementRange> LocalOptimizer::ranges() const {
  std::map<std::string, ElementRange> ranges;
  for (const ParameterGroup& group : groups_) {
    for (const auto& [name, parameter] : group.parameters) {
      ranges[name] = {.begin = 0, .end = parameter.numel(), .total = parameter.numel()};
    }
  }
  return ranges;
}

OptimizerRecord LocalOptimizer::record() const {
  OptimizerRecord record{.kind = kind_, .groups = {}};
  for (const ParameterGroup& group : groups_) {
    record.groups.push_back(
        {.name = group.name, .options = own_options(group.options), .parameters = {}});
    for (const auto& [name, parameter] : group.parameters)
      record.groups.back().parameters.push_back(name);
  }
  return record;
}

void LocalOptimizer::take_state(const NamedTensors& state, Taken taken) {
  const at::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> given(state.begin(), state.end());
  std::vector<std::vector<NamedTensors>> loaded;
  std::set<const void*> seen;
  for (const ParameterGroup& group : groups_) {
    auto& of_group = loaded.emplace_back(group.parameters.size());
    for (std::size_t i = 0; i < group.parameters.size(); ++i) {
      const auto& [name, parameter] = group.parameters[i];
      const std::string prefix = name + ".";
      NamedTensors expected = make_state(group.options, parameter.detach().to(at::kMeta));
      NamedTensors own;
      std::size_t found = 0;
      std::string missing;
      for (const auto& [kind, tensor] : expected) {
        const auto from = given.find(prefix + kind);
        if (from == given.end()) {
          missing = prefix + kind;
          continue;
        }
        const at::Tensor& value = from->second;
        const bool flat = value.dim() == 1 && value.numel() == tensor.numel();
        if ((!flat && value.sizes() != tensor.sizes()) ||
            value.scalar_type() != tensor.scalar_type()) {
          throw wrong_shape(from->first, value, tensor);
        }
        // Two names may have one tensor.
        const bool is_first = seen.insert(value.const_data_ptr()).second;
        own.emplace_back(kind, taken_as(tensor, value.reshape(tensor.sizes()), parameter.device(),
                                        taken == Taken::kAdopted && is_first));
        given.erase(from);
        ++found;
      }
      if (found == 0) continue;  // a parameter that never had a gradient has no state
      if (!missing.empty()) {
        throw TrainError(
            formatted("the optimizer state has no '{}': was another --optimizer used?", missing));
      }
      of_group[i] = std::move(own);
    }
  }
  if (!given.empty()) {
    throw TrainError(
        formatted("the optimizer state contains '{}', which this optimizer does not have: was "
                  "another --optimizer used?",
                  given.begin()->first));
  }
  states_ = std::move(loaded);
}

}  // namespace torchbridge::train
