// Batch normalisation over the batches of all ranks, with its backward.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

namespace c10d {
class ProcessGroup;
}

namespace torchbridge::train {

struct SyncBatchNormInputs {
  at::Tensor input;                      // (N, C, ...); N may be 0 and differ between ranks
  at::Tensor weight, bias;               // (C), or both undefined
  at::Tensor running_mean, running_var;  // (C), updated; or undefined
  double momentum = 0.1, eps = 1e-5;
};

// Collective, also in backward. Follows torch/nn/modules/_functions.py of PyTorch: each rank's
// mean, spread and count are gathered; backward sums two vectors of C. Gradients of weight and bias
// are those of this rank's batch: DDP adds them up.
at::Tensor sync_batch_norm(const SyncBatchNormInputs& inputs,
                           const c10::intrusive_ptr<c10d::ProcessGroup>& group);

}  // namespace torchbridge::train
