// ZeRO stage 1: each rank keeps the optimizer's state for its part of the parameters, updates that part, and gets the
// rest from the other ranks.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <torchbridge/train/optim/optimizer.h>
#include <torchbridge/train/group/process_group.h>

namespace torchbridge::train {

enum class GradientAverage {
  kAuto,           // kDdp on gloo, whose reduce-scatter is an all-reduce inside; kReduceScatter on other backends
  kDdp,            // DDP gives all ranks all gradients, during backward
  kReduceScatter,  // each rank gets its part alone, after backward: half the traffic. Backward runs under DDP's NoSync
};

// Moves all parameters into one contiguous tensor, in their order, each at a multiple of 64 bytes, and gives rank r the r-th of
// world_size equal parts, wherever that cuts a parameter (Rajbhandari et al. 2020, section 5.1). `make` is called with the same
// groups, in which each parameter is replaced by this rank's flat piece of it or left out.
// The parameters keep their names, shapes and values but become contiguous; make DDP after this. The group must outlive it.
// With kDdp, results equal those of the whole optimizer bit for bit: sums are the same, and each element is updated
// alone. A parameter that no rank has a gradient for in a step is left alone with either.
// Collective in step() and average_gradients(). Throws TrainError for parameters of several types or devices, which it names.
std::unique_ptr<Optimizer> make_zero(std::vector<ParameterGroup> groups, ProcessGroup& group,
                                     const std::function<std::unique_ptr<Optimizer>(std::vector<ParameterGroup>)>& make,
                                     GradientAverage average = GradientAverage::kAuto);

}  // namespace torchbridge::train
