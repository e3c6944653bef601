// Checks before training that all ranks have the same parameters, and gives them the same values.
#pragma once

#include <torchbridge/model_tensors.h>
#include <torchbridge/process_group.h>

namespace torchbridge::train {

// Collective: each rank compares its parameters with rank 0's: number, names, shapes, strides,
// types and whether they require a gradient. When one differs all ranks throw the same TrainError,
// which names the parameter, two ranks and the value of each.
void check_same_parameters(const NamedTensors& parameters, ProcessGroup& group);

// Collective: gives each tensor its value on `root`, many in one message.
void broadcast_values(const std::vector<at::Tensor>& tensors, ProcessGroup& group, int root = 0);

}  // namespace torchbridge::train
