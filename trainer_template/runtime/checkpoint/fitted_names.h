// The names of a file's tensors as a model has them.
#pragma once

#include <torchbridge/model_tensors.h>

namespace torchbridge::train {

// Takes prefixes of wrappers and of other programs' models ("module.", "_orig_mod.",
// "transformer.", "model.") off the names that have them, if the model knows more of the names
// then. Else the tensors as they are.
NamedTensors fitted_names(const NamedTensors& tensors, const ModelTensors& model);

}  // namespace torchbridge::train
