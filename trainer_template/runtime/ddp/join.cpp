#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torchbridge/ddp.h>
#include <torchbridge/process_group.h>

#include "bridge/base/message_text.h"

namespace torchbridge::train {
namespace {

at::Tensor sum_of(ProcessGroup& group, const at::Tensor& tensor) {
  group.sum(tensor);
  at::Tensor sum = tensor.cpu();
  group.throw_if_aborted();
  return sum;
}

// Collective, when a rank without inputs waits: 1 for each rank that has no more inputs.
at::Tensor exhausted_ranks(ProcessGroup& group, at::Device device, bool is_one) {
  at::Tensor ranks = at::zeros({group.world_size()}, device);
  if (is_one) ranks[group.rank()] = 1;
  return sum_of(group, ranks);
}

[[noreturn]] void throw_exhausted(const at::Tensor& ranks) {
  std::string list;
  int count = 0;
  for (std::int64_t rank = 0; rank < ranks.numel(); ++rank) {
    if (ranks[rank].item<double>() == 0) continue;
    list += (count++ > 0 ? ", " : "") + std::to_string(rank);
  }
  throw InputsExhausted(
      formatted("{} no more inputs, but others have (throw_on_early_termination)",
                count == 1 ? formatted("rank {} has", list) : formatted("ranks {} have", list)));
}

}  // namespace

c10::intrusive_ptr<c10d::Work> Joinable::notify_join() {
  if (!is_joining() || !notifies_) return {};
  std::vector<at::Tensor> one = {at::ones({1}, join_device())};
  auto counting = group_->c10d()->allreduce(one);
  if (options_.throw_on_early_termination) {
    const at::Tensor ranks = exhausted_ranks(*group_, join_device(), false);
    if (ranks.any().item<bool>()) throw_exhausted(ranks);
  }
  return counting;
}

void join(const std::vector<Joinable*>& joinables, ProcessGroup& group, const JoinOptions& options,
          const std::function<void()>& train) {
  if (joinables.empty()) throw TrainError("join needs at least one joinable");
  struct Scope {
    const std::vector<Joinable*>& joinables;
    ~Scope() {
      for (Joinable* joinable : joinables) joinable->group_ = nullptr;
    }
  } scope{joinables};
  if (options.enable) {
    for (Joinable* joinable : joinables) {
      joinable->options_ = options;
      joinable->group_ = &group;
      joinable->notifies_ = joinable == joinables.front();
      joinable->begin_join();
    }
  }
  train();
  if (!options.enable) return;

  const at::Device device = joinables.front()->join_device();
  bool was_last = true;
  while (sum_of(group, at::zeros({1}, device)).item<double>() > 0) {
    if (options.throw_on_early_termination) throw_exhausted(exhausted_ranks(group, device, true));
    for (Joinable* joinable : joinables) joinable->shadow_iteration();
    was_last = false;
  }
  for (Joinable* joinable : joinables) joinable->all_joined(was_last);
}

}  // namespace torchbridge::train
