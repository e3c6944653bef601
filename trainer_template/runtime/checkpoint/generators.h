// The states of a rank's random generators, as tensors of a checkpoint.
#pragma once

#include <c10/core/Device.h>
#include <torchbridge/model_tensors.h>

namespace torchbridge::train {

// "cpu_generator" and, where this rank computes on another device, "cuda_generator" (by the
// device's type). In Python they are torch.get_rng_state() and torch.cuda.get_rng_state(device).
// Copies.
NamedTensors generator_states(c10::Device device);

// The inverse. A generator without an entry stays as it is: a run may resume on another kind of
// device.
void restore_generators(const NamedTensors& states, c10::Device device);

}  // namespace torchbridge::train
