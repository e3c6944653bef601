// One all-reduce for selected parameters, which starts when the gradient of another parameter is
// ready.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <torchbridge/process_group.h>

namespace c10d {
class Work;
}

namespace torchbridge::train {

// Python's delay_all_reduce_named_params and param_to_hook_all_reduce of DistributedDataParallel.
// The gradients are views of one buffer, from begin_backward() on. Python does not wait for this
// all-reduce; here it is complete when backward() returns.
class DelayedAllReduce {
 public:
  // Collective: sets the parameters to the values of rank 0. `until` must get its gradient after
  // all of `parameters`, in every backward.
  DelayedAllReduce(std::vector<at::Tensor> parameters, const at::Tensor& until,
                   ProcessGroup& group);
  ~DelayedAllReduce();
  DelayedAllReduce(const DelayedAllReduce&) = delete;
  DelayedAllReduce& operator=(const DelayedAllReduce&) = delete;

  // To be called after each forward pass. Gradients that zero_grad dropped become views of the
  // buffer again, as zeros.
  void begin_backward();

 private:
  void start();

  ProcessGroup& group_;
  std::vector<at::Tensor> parameters_, views_;
  at::Tensor buffer_, until_;
  unsigned hook_ = 0;
};

}  // namespace torchbridge::train
