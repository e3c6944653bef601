// DistributedDataParallel: keeps a model equal on all ranks by averaging gradients while backward runs.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trainer_template/runtime/base/train_state.h"
#include "trainer_template/runtime/ddp/comm_hooks.h"
#include "trainer_template/runtime/ddp/join.h"
#include "trainer_template/runtime/ddp/output_tensors.h"
#include "trainer_template/runtime/process_group/process_group.h"
#include "trainer_template/runtime/tensors/named_tensors.h"

namespace c10d {
class Logger;
class Reducer;
}  // namespace c10d

namespace torchbridge::train {

class DelayedAllReduce;

// Parameters whose gradients are reduced together, outside of the buckets, when the gradient of `until` is ready
// (delayed_all_reduce.h).
struct DelayedParameters {
  std::vector<std::string> names;
  std::string until;
};

// Names and defaults are Python's.
struct DdpOptions {
  std::optional<double> bucket_cap_mb = {};  // MiB of a bucket; not set: 25, and 1 for the first bucket
  // Instead: MiB of the first bucket, the second ...; the last value is also for all that follow.
  std::vector<double> bucket_cap_mb_list = {};
  bool gradient_as_bucket_view = false;  // saves a copy of the gradients
  bool find_unused_parameters = false;   // some outputs may not depend on all parameters, or not be part of the loss
  bool static_graph = false;             // each step uses the same parameters
  bool broadcast_buffers = true;         // rank 0's, before each forward pass
  bool init_sync = true;  // check parameters and take rank 0's values; without it they must be equal already
  bool skip_all_reduce_unused_params = false;  // with find_unused_parameters: a bucket that no rank used is not reduced
  std::set<std::string> ignore = {};           // names of parameters and buffers that DDP does not touch
  DelayedParameters delay_all_reduce = {};
  std::optional<CommHook> comm_hook = {};  // registered by the constructor
  // From a checkpoint of the same model, so that the first step already sums in the order of the run before.
  BucketLayout buckets = {};
};

// The data of c10d's Logger: settings, sizes of the buckets, and times in ns of the steps that it sampled. The names
// are Python's (DDPLoggingData): avg_backward_compute_comm_overlap_time ...
struct DdpLoggingData {
  std::map<std::string, std::string> strings;
  std::map<std::string, std::int64_t> numbers;
};

// The engine of Python's class of the same name (c10d::Reducer), called in the same order, so losses are equal bit for
// bit. One thread; the group must outlive it. `model` shares memory with the module, which is used as before, inside
// forward().
class DistributedDataParallel : public Joinable {
 public:
  // Collective: checks that all ranks have the same parameters and takes the values of rank 0.
  DistributedDataParallel(ModelTensors model, ProcessGroup& group, DdpOptions options = {});
  ~DistributedDataParallel() override;
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  // Runs the model's forward pass and returns its output: ddp.forward(model, x), for a torch::nn holder or a torch::jit
  // module, or ddp.forward([&] { return model->forward(x, mask); }). output_tensors.h lists the types of
  // output. With gradients on, the backward pass that follows reduces over the ranks.
  template <class Forward, class... Arguments>
  auto forward(Forward&& run, Arguments&&... arguments) {
    before_forward();
    auto output = std::invoke(std::forward<Forward>(run), std::forward<Arguments>(arguments)...);
    std::vector<at::Tensor> tensors;
    if (uses_outputs()) visit_tensors(output, [&](at::Tensor& tensor) { tensors.push_back(tensor); });
    if (after_forward(tensors)) {
      visit_tensors(output, [next = tensors.begin()](at::Tensor& tensor) mutable { tensor = *next++; });
    }
    return output;
  }

  // While one is alive, backward only adds to the local gradients: for all micro-batches of a step but the last. The
  // forward pass must be inside as well.
  class NoSync {
   public:
    explicit NoSync(DistributedDataParallel& ddp, bool is_on = true) : ddp_(ddp), before_(ddp.synchronize_) {
      ddp.synchronize_ = before_ && !is_on;
    }
    ~NoSync() { ddp_.synchronize_ = before_; }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DistributedDataParallel& ddp_;
    bool before_;
  };

  // A NoSync that has no effect where `synchronizes` is true.
  NoSync no_sync_unless(bool synchronizes) { return NoSync(*this, !synchronizes); }

  // Collective: gives all ranks the buffers of rank 0, unless broadcast_buffers is off. For an evaluation, which calls
  // the model without DDP.
  void synchronize_buffers();

  // Once, before the first backward, on all ranks the same.
  void register_comm_hook(CommHook hook);

  // Collective, between backward and the next forward: the layout that the next step will use.
  BucketLayout buckets();

  DdpLoggingData logging_data();
  // Which steps are timed: the first ten, then each `steps`-th (100). Timing costs a few microseconds.
  void set_runtime_logging_sample_rate(int steps);

 private:
  void make_delayed();
  void make_reducer();
  std::vector<at::Tensor> buffers() const;

  void before_forward();
  bool uses_outputs() const;
  // True when it has replaced the tensors in `outputs`.
  bool after_forward(std::vector<at::Tensor>& outputs);
  bool synchronizes() const;
  bool is_due_to_broadcast_buffers() const;

  // ddp_join.cpp
  void begin_join() override;
  at::Device join_device() const override;
  void shadow_iteration() override;
  void all_joined(bool was_last) override;
  int highest_rank(bool is_candidate);
  bool any_rank_synchronizes(bool has_inputs);

  ModelTensors model_;  // without the ignored tensors
  ProcessGroup& group_;
  DdpOptions options_;
  bool synchronize_ = true;
  bool buffers_current_ = true;  // Python's require_forward_param_sync
  std::shared_ptr<bool> delay_queued_ = std::make_shared<bool>(false);
  std::unique_ptr<DelayedAllReduce> delayed_;
  std::shared_ptr<c10d::Reducer> reducer_;
  std::shared_ptr<c10d::Logger> logger_;
};

}  // namespace torchbridge::train
