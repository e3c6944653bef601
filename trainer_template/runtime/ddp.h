// DistributedDataParallel: keeps a model equal on all ranks by averaging gradients while backward runs.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <torchbridge/train/named_tensors.h>
#include <torchbridge/train/process_group.h>

namespace c10d {
class Logger;
class Reducer;
}  // namespace c10d

namespace torchbridge::train {

// Indices of parameters, bucket by bucket, in the order in which the buckets are reduced.
using BucketLayout = std::vector<std::vector<std::size_t>>;

struct DdpOptions {
  double bucket_cap_mb = 25;
  bool bucket_cap_is_default = true;  // then the first bucket is of 1 MiB, as in Python
  // Saves a copy of the gradients. Off, as in Python.
  bool gradient_as_bucket_view = false;
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool broadcast_buffers = true;
  // From a checkpoint of the same model, so that the first step already sums in the order that the run before used.
  BucketLayout buckets;
};

// The engine of Python's class of the same name (c10d::Reducer), called in the same order, so losses are equal bit for bit.
// One thread; the group must outlive it.
class DistributedDataParallel {
 public:
  // Collective: checks that all ranks have the same parameters and takes the values of rank 0.
  DistributedDataParallel(ModelTensors model, ProcessGroup& group, const DdpOptions& options = {});
  ~DistributedDataParallel();
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  // Runs the model's forward pass, a callable that returns its output: ddp.forward([&] { return model->forward(x); }).
  // With gradients on, the backward pass that follows reduces over the ranks.
  template <class Forward>
  at::Tensor forward(Forward&& run) {
    before_forward();
    at::Tensor output = run();
    return after_forward(std::move(output));
  }

  // While one is alive, backward only adds to the local gradients: for all but the last part of an accumulated step.
  class NoSync {
   public:
    explicit NoSync(DistributedDataParallel& ddp) : ddp_(ddp), before_(ddp.synchronize_) { ddp.synchronize_ = false; }
    ~NoSync() { ddp_.synchronize_ = before_; }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DistributedDataParallel& ddp_;
    bool before_;
  };

  // Collective, between backward and the next forward: the layout that the next step will use.
  BucketLayout buckets();

 private:
  void before_forward();
  at::Tensor after_forward(at::Tensor output);
  bool synchronizes() const;
  void broadcast_buffers();

  ModelTensors model_;
  ProcessGroup& group_;
  DdpOptions options_;
  bool synchronize_ = true;
  bool buffers_current_ = true;  // Python's require_forward_param_sync
  bool delay_queued_ = false;
  std::shared_ptr<c10d::Reducer> reducer_;
  std::shared_ptr<c10d::Logger> logger_;
};

}  // namespace torchbridge::train
