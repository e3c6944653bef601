// ZeRO stage 1: each rank keeps the optimizer's state for its shard of the parameters, updates that shard, and receives
// the others from their ranks.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "trainer_template/runtime/optim/optimizer.h"
#include "trainer_template/runtime/process_group/process_group.h"

namespace torchbridge::train {

enum class GradientAverage {
  kAuto,           // kDdp on gloo, for results equal bit for bit; kReduceScatter on other backends
  kDdp,            // DDP's all-reduce: all ranks have all gradients
  kReduceScatter,  // each rank gets the gradients of its shard alone, bucket by bucket in backward: half the traffic
};

// Moves all parameters into one contiguous tensor, in their order, each at a multiple of 64 bytes. Rank r owns the r-th
// of world_size equal shards; a shard may end within a parameter (Rajbhandari et al. 2020, section 5.1). `make` is
// called with the same groups, in which each parameter is replaced by this rank's flat piece of it, or removed where
// the rank owns nothing of it. The parameters keep their names, shapes and values but become contiguous: make DDP after
// this, with {.comm_hook = optimizer->comm_hook()}, and destroy it before this. The group must outlive both.
// With kDdp, results equal those of the unsharded optimizer bit for bit: sums are the same, and each element is updated
// on its own. With kReduceScatter that holds for two ranks without clipping; more ranks sum in another order.
// A parameter without a gradient after backward is not changed.
// Collective in step(). Throws TrainError for parameters of several types or devices, which it names.
std::unique_ptr<Optimizer> make_zero(std::vector<ParameterGroup> groups, ProcessGroup& group,
                                     const std::function<std::unique_ptr<Optimizer>(std::vector<ParameterGroup>)>& make,
                                     GradientAverage average = GradientAverage::kAuto);

}  // namespace torchbridge::train
