// ZeRO stage 1: each rank keeps the optimizer's state for its part of the parameters, updates that part, and gets the
// rest from the other ranks.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "trainer_template/runtime/process_group/process_group.h"
#include "trainer_template/runtime/optim/optimizer.h"

namespace torchbridge::train {

enum class GradientAverage {
  kAuto,           // kDdp on gloo, for the bits; kReduceScatter on other backends
  kDdp,            // DDP's all-reduce: all ranks have all gradients
  kReduceScatter,  // each rank gets those of its part alone, bucket by bucket in backward: half the traffic
};

// Moves all parameters into one contiguous tensor, in their order, each at a multiple of 64 bytes, and gives rank r the
// r-th of world_size equal parts, wherever that cuts a parameter (Rajbhandari et al. 2020, section 5.1). `make` is
// called with the same groups, in which each parameter is replaced by this rank's flat piece of it or left out. The
// parameters keep their names, shapes and values but become contiguous; make DDP after this, with {.comm_hook =
// optimizer->comm_hook()}, and let it go before this. The group must outlive both.
// With kDdp, results equal those of the whole optimizer bit for bit: sums are the same, and each element is updated
// alone. With kReduceScatter so do those of two ranks without clipping; of more, the order of summation is another.
// A parameter without a gradient after backward is left alone.
// Collective in step(). Throws TrainError for parameters of several types or devices, which it names.
std::unique_ptr<Optimizer> make_zero(std::vector<ParameterGroup> groups, ProcessGroup& group,
                                     const std::function<std::unique_ptr<Optimizer>(std::vector<ParameterGroup>)>& make,
                                     GradientAverage average = GradientAverage::kAuto);

}  // namespace torchbridge::train
