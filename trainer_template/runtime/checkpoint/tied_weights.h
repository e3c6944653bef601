// Weights that have several names, as a language model's embedding is its output layer too.
#pragma once

#include <map>
#include <string>

#include "trainer_template/runtime/tensors/named_tensors.h"

namespace torchbridge::train {

// The tensors of a file under the names that the model saves them by: each once. Left out is another name of a tensor
// that the model knows; what is there under the other name alone is renamed; what the file ties and the model does not
// is left out too where the model has no such name. The order is kept. Throws TrainError where the model ties two
// tensors whose values differ in the file.
NamedTensors without_aliases(const NamedTensors& from, const ModelTensors& model, const std::string& what);

// The metadata of a model's safetensors file: "format", and each other name with the name that it is saved under, as
// safetensors.torch.save_model writes it. The tensors themselves are in the file once: the format has no shared ones.
std::map<std::string, std::string> model_metadata(const ModelTensors& model);

}  // namespace torchbridge::train
