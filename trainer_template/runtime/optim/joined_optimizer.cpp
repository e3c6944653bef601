#include "trainer_template/runtime/optim/joined_optimizer.h"

#include <utility>

#include <torchbridge/errors.h>

#include "bridge/base/message_text.h"

namespace torchbridge::train {
namespace {

template <class T>
void append(std::vector<T>& all, std::vector<T> more) {
  all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

}  // namespace

JoinedOptimizer::JoinedOptimizer(std::vector<Optimizer*> all) : all_(std::move(all)) {
  std::map<std::string, ElementRange> seen;
  for (const Optimizer* each : all_) {
    for (const auto& [name, range] : each->ranges()) {
      if (!seen.emplace(name, range).second)
        throw TrainError(formatted("two optimizers have the parameter '{}'", name));
    }
    if (each->shards() != shards())
      throw TrainError(
          "ZeRO divides the state of one optimizer among the ranks, but not that of another");
  }
}

std::vector<ParameterGroup*> JoinedOptimizer::groups() {
  std::vector<ParameterGroup*> groups;
  for (Optimizer* each : all_) append(groups, each->groups());
  return groups;
}

void JoinedOptimizer::zero_grad() {
  for (Optimizer* each : all_) each->zero_grad();
}

void JoinedOptimizer::read_until(std::function<void()> wait) {
  for (Optimizer* each : all_) each->read_until(wait);
}

std::vector<at::Tensor> JoinedOptimizer::averaged() const {
  std::vector<at::Tensor> tensors;
  for (const Optimizer* each : all_) append(tensors, each->averaged());
  return tensors;
}

NamedTensors JoinedOptimizer::state() const {
  NamedTensors state;
  for (const Optimizer* each : all_) append(state, each->state());
  return state;
}

std::map<std::string, ElementRange> JoinedOptimizer::ranges() const {
  std::map<std::string, ElementRange> ranges;
  for (const Optimizer* each : all_) ranges.merge(each->ranges());
  return ranges;
}

OptimizerRecord JoinedOptimizer::record() const {
  OptimizerRecord all = all_.front()->record();
  for (std::size_t i = 1; i < all_.size(); ++i) {
    OptimizerRecord record = all_[i]->record();
    if (record.kind != all.kind) all.kind.clear();
    append(all.groups, std::move(record.groups));
  }
  return all;
}

// By the names of the parameters; what no optimizer knows goes to the first, which names it in its
// error.
std::vector<NamedTensors> JoinedOptimizer::divided(const NamedTensors& state) const {
  std::map<std::string, std::size_t> owners;
  for (std::size_t i = 0; i < all_.size(); ++i) {
    for (const auto& [name, range] : all_[i]->ranges()) owners[name] = i;
  }
  std::vector<NamedTensors> parts(all_.size());
  for (const auto& entry : state) {
    const auto owner = owners.find(entry.first.substr(0, entry.first.rfind('.')));
    parts[owner == owners.end() ? 0 : owner->second].push_back(entry);
  }
  return parts;
}

void JoinedOptimizer::load_state(const NamedTensors& state) {
  const std::vector<NamedTensors> parts = divided(state);
  for (std::size_t i = 0; i < all_.size(); ++i) all_[i]->load_state(parts[i]);
}

void JoinedOptimizer::adopt_state(const NamedTensors& state) {
  const std::vector<NamedTensors> parts = divided(state);
  for (std::size_t i = 0; i < all_.size(); ++i) all_[i]->adopt_state(parts[i]);
}

void JoinedOptimizer::take_step(const at::Tensor& found_inf) {
  for (Optimizer* each : all_) each->step(found_inf);
}

}  // namespace torchbridge::train
