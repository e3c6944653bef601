// DDP's part in training with uneven inputs: Python's _DDPJoinHook.
#include <ATen/ops/full.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "trainer_template/runtime/ddp/ddp.h"
#include "trainer_template/runtime/ddp/delayed_all_reduce.h"
#include "trainer_template/runtime/ddp/parameter_sync.h"

namespace torchbridge::train {

void DistributedDataParallel::begin_join() {
  if (delayed_) throw TrainError("DDP's delay_all_reduce does not work within join");
  logger_->set_uneven_input_join();
}

at::Device DistributedDataParallel::join_device() const { return model_.parameters.front().second.device(); }

// The highest rank of those that are candidates.
int DistributedDataParallel::common_rank(bool is_candidate) {
  return static_cast<int>(-group_.minimum(is_candidate ? -group_.rank() : 1));
}

// Ranks with inputs say whether their backward will reduce; the answer is for those without.
bool DistributedDataParallel::tell_whether_to_synchronize(bool has_inputs) {
  const at::Tensor wishes = at::full({1}, has_inputs && synchronize_ ? 1 : 0, join_device());
  group_.sum(wishes);
  return wishes.item<std::int64_t>() != 0;
}

void DistributedDataParallel::shadow_iteration() {
  reducer_->rebuild_buckets();
  if (is_due_to_broadcast_buffers()) broadcast_values(buffers(), group_, common_rank(false));
  buffers_current_ = tell_whether_to_synchronize(false);
  if (!buffers_current_) return;

  // The others' buckets in their order, of zeros.
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
  const int root = common_rank(was_last);
  std::vector<at::Tensor> values;
  for (const auto& [name, parameter] : model_.parameters) values.push_back(parameter);
  if (options_.broadcast_buffers) {
    for (const at::Tensor& buffer : buffers()) values.push_back(buffer);
  }
  broadcast_values(values, group_, root);
}

}  // namespace torchbridge::train
