// The parameters and buffers of a model that is made of modules.
#pragma once

#include "trainer_template/runtime/tensors/named_tensors.h"

namespace torch::nn {
class Module;
}
namespace torch::jit {
struct Module;
}

namespace torchbridge::train {

// Parameters and buffers in the order in which they were registered, which is the order of Python's state_dict when the
// layers are registered as Python assigns them. Undefined ones (a Linear without bias) are left out.
ModelTensors tensors_of(const torch::nn::Module& model);

// The same of a TorchScript module. Its sparse embeddings are found as long as they keep their constant `sparse`, as
// those that torch.jit.script compiles do; a traced one has none and needs `sparse_gradients` to be filled in.
ModelTensors tensors_of(const torch::jit::Module& model);

}  // namespace torchbridge::train
