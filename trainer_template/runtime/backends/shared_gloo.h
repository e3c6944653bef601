// A gloo backend whose small all-reduces and broadcasts go over memory that the ranks of a node
// share: the same sums without connections and threads.
#pragma once

#include <memory>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "trainer_template/runtime/backends/shared_region.h"

namespace torchbridge::train {

// A tensor that is larger than 1 MiB, not on the CPU, not contiguous, or reduced by another
// operator than SUM, MIN and MAX goes over gloo's connections. A collective over shared memory is
// complete when the call returns: all ranks must call it before any of them does something else
// that another waits for.
class SharedGloo : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;

  // Collective, once. Where one rank cannot map the memory, or `is_wanted` is false on it, no rank
  // uses it.
  void share(const c10::intrusive_ptr<c10d::Store>& store, bool is_wanted);
  // Null where no memory is shared.
  const std::shared_ptr<SharedRegion>& region() const { return region_; }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override;

 private:
  std::chrono::milliseconds timeout(std::chrono::milliseconds given);
  bool is_shared(const std::vector<at::Tensor>& tensors) const;
  template <class Number>
  void reduce(const at::Tensor& tensor, c10d::ReduceOp::RedOpType op,
              std::chrono::milliseconds timeout);

  std::shared_ptr<SharedRegion> region_;
};

}  // namespace torchbridge::train
