// Forward pass and loss of one batch, in the precision of the run.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "trainer_template/runtime/data/dataset.h"
#include "trainer_template/runtime/ddp/ddp.h"
#include "trainer_template/runtime/training/task.h"

namespace torchbridge::train {

// Returns the mean loss over the batch, without dimensions, to call backward() on. `precision`: of autocast;
// c10::kFloat: no autocast, each operation computes in the type of its tensors. `step` is for messages: throws
// TrainError if the model rejects the batch, as batch normalisation rejects one value a channel. Collective if DDP
// broadcasts buffers.
at::Tensor forward_loss(DistributedDataParallel& ddp, Model& model, const Task& task, const Batch& batch,
                        c10::ScalarType precision, std::int64_t step);

}  // namespace torchbridge::train
