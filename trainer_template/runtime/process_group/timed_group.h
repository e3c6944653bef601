// A c10d::ProcessGroup that records when each collective begins, so that the ranks of a broken
// group can find out which of them were late, and when it ends, so that a rank notices that it
// hangs in one.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "trainer_template/runtime/backends/c10d_versions.h"
#include "trainer_template/runtime/process_group/connections.h"

namespace torchbridge::train {

// Records the collectives that DDP, the optimizers and RankGroup use, and no others.
class TimedGroup : public c10d::ProcessGroup {
 public:
  using Tensors = std::vector<at::Tensor>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  struct Traits {
    bool is_whole = false;  // not a subgroup
    // That complete when the collective has ended; CUDA's complete when it is enqueued.
    bool has_futures = false;
  };
  TimedGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
             std::shared_ptr<Connections> connections, Traits traits)
      : c10d::ProcessGroup(store, rank, size),
        connections_(std::move(connections)),
        traits_(traits) {}

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return timed([&] { return ProcessGroup::allreduce(tensors, options); });
  }
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return timed([&] { return ProcessGroup::broadcast(tensors, options); });
  }
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override {
    return timed([&] { return ProcessGroup::allgather(outputs, inputs, options); });
  }
  WorkPtr TORCHBRIDGE_ALL_GATHER_SINGLE(at::Tensor& output, at::Tensor& input,
                                        const c10d::AllgatherOptions& options) override {
    return timed(
        [&] { return ProcessGroup::TORCHBRIDGE_ALL_GATHER_SINGLE(output, input, options); });
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    return timed([&] { return ProcessGroup::reduce(tensors, options); });
  }
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    return timed([&] { return ProcessGroup::barrier(options); });
  }

 private:
  template <typename Collective>
  WorkPtr timed(const Collective& start) {
    connections_->begin_collective(traits_.is_whole);
    WorkPtr work;
    try {
      work = connections_->call_backend(start);
    } catch (...) {
      connections_->end_collective();
      throw;
    }
    if (traits_.has_futures)
      work->getFuture()->addCallback(
          [connections = connections_](auto&) { connections->end_collective(); });
    return work;
  }

  std::shared_ptr<Connections> connections_;
  Traits traits_;
};

}  // namespace torchbridge::train
