// A c10d::ProcessGroup that records when each collective begins, so that the ranks of a broken group can find out which
// of them were late.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "trainer_template/runtime/process_group/connections.h"

namespace torchbridge::train {

// Records the collectives that DDP, the optimizers and RankGroup use, and no others.
class TimedGroup : public c10d::ProcessGroup {
 public:
  using Tensors = std::vector<at::Tensor>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  TimedGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, std::shared_ptr<Connections> connections)
      : c10d::ProcessGroup(store, rank, size), connections_(std::move(connections)) {}

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    connections_->begin_collective();
    return ProcessGroup::allreduce(tensors, options);
  }
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    connections_->begin_collective();
    return ProcessGroup::broadcast(tensors, options);
  }
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    connections_->begin_collective();
    return ProcessGroup::allgather(outputs, inputs, options);
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    connections_->begin_collective();
    return ProcessGroup::_allgather_base(output, input, options);
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    connections_->begin_collective();
    return ProcessGroup::reduce(tensors, options);
  }
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    connections_->begin_collective();
    return ProcessGroup::barrier(options);
  }

 private:
  std::shared_ptr<Connections> connections_;
};

}  // namespace torchbridge::train
