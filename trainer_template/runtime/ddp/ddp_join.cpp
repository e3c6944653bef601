// DDP for training with uneven inputs: Python's _DDPJoinHook.
#include <ATen/ops/full.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <torchbridge/ddp.h>

#include "trainer_template/runtime/ddp/delayed_all_reduce.h"
#include "trainer_template/runtime/ddp/parameter_sync.h"

namespace torchbridge::train {

void DistributedDataParallel::begin_join() {
  if (delayed_) throw TrainError("DDP's delay_all_reduce cannot be used within join");
  if (logger_) logger_->set_uneven_input_join();  // none with one rank
}

at::Device DistributedDataParallel::join_device() const {
  return model_.parameters.front().second.device();
}

// Collective. The highest rank among the candidates.
int DistributedDataParallel::highest_rank(bool is_candidate) {
  return static_cast<int>(-group_.minimum(is_candidate ? -group_.rank() : 1));
}

// Collective. Whether the backward of any rank with inputs will reduce, for the ranks without
// inputs.
bool DistributedDataParallel::any_rank_synchronizes(bool has_inputs) {
  const at::Tensor count = at::full({1}, has_inputs && synchronize_ ? 1 : 0, join_device());
  group_.sum(count);
  const auto found = count.item<std::int64_t>();
  group_.throw_if_aborted();
  return found != 0;
}

void DistributedDataParallel::shadow_iteration() {
  reducer_->rebuild_buckets();
  if (is_due_to_broadcast_buffers()) broadcast_values(buffers(), group_, highest_rank(false));
  buffers_current_ = any_rank_synchronizes(false);
  if (!buffers_current_) return;

  // The buckets of the other ranks in their order, as zeros.
  std::vector<c10::intrusive_ptr<c10::ivalue::Future>> reductions;
  std::vector<c10d::GradBucket> buckets = reducer_->get_grad_buckets(/*return_zero_tensors=*/true);
  for (c10d::GradBucket& bucket : buckets) reductions.push_back(reducer_->run_comm_hook(bucket));
  for (const auto& reduction : reductions) reduction->waitAndThrow();
  if (options_.find_unused_parameters && !options_.static_graph) {
    std::vector<at::Tensor> used = {reducer_->get_local_used_map_on_device()};
    group_.c10d()->allreduce(used)->wait();
  }
  reducer_->push_rebuilt_params_for_all_indices();
}

void DistributedDataParallel::all_joined(bool was_last) {
  const int root = highest_rank(was_last);
  std::vector<at::Tensor> values;
  for (const auto& [name, parameter] : model_.parameters) values.push_back(parameter);
  if (broadcasts_in_forward()) {
    for (const at::Tensor& buffer : buffers()) values.push_back(buffer);
  }
  broadcast_values(values, group_, root);
}

}  // namespace torchbridge::train
