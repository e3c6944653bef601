// The buckets of several DDPs, each of a part of one model, as one layout for the checkpoint.
#pragma once

#include <functional>
#include <vector>

#include <torchbridge/ddp.h>
#include <torchbridge/model_tensors.h>
#include <torchbridge/train_state.h>

namespace torchbridge::train {

// Layouts number the parameters that require a gradient: those of a DDP's part in the DDP's
// options, those of the model in a checkpoint.

// Collective, as DistributedDataParallel::buckets(): those of all, as one layout of `model`. That
// of one DDP is left as it is.
BucketLayout buckets_of(const std::vector<std::reference_wrapper<DistributedDataParallel>>& ddps,
                        const ModelTensors& model);

// The inverse: the buckets of `part`; empty if they are not exactly of its parameters.
BucketLayout buckets_of_part(const BucketLayout& whole, const ModelTensors& model,
                             const ModelTensors& part);

}  // namespace torchbridge::train
