// One all-reduce for chosen parameters, begun when the gradient of another parameter comes.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer_template/runtime/process_group/process_group.h"

namespace c10d {
class Work;
}

namespace torchbridge::train {

// Python's delay_all_reduce_named_params and param_to_hook_all_reduce of DistributedDataParallel. The gradients are
// views of one buffer, from begin_backward() on. Unlike Python's, whose all-reduce nobody waits for, it is done when
// backward() returns.
class DelayedAllReduce {
 public:
  // Collective: takes the parameters' values of rank 0. `until` must get its gradient after all of `parameters`, in
  // every backward.
  DelayedAllReduce(std::vector<at::Tensor> parameters, const at::Tensor& until, ProcessGroup& group);
  ~DelayedAllReduce();
  DelayedAllReduce(const DelayedAllReduce&) = delete;
  DelayedAllReduce& operator=(const DelayedAllReduce&) = delete;

  // To be called after each forward pass: gradients that zero_grad dropped are in the buffer again, as zeros.
  void begin_backward();

 private:
  void start();

  ProcessGroup& group_;
  std::vector<at::Tensor> parameters_, views_;
  at::Tensor buffer_, until_;
  unsigned hook_ = 0;
};

}  // namespace torchbridge::train
