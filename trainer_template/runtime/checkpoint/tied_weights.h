// Weights with several names, such as the embedding of a language model that is also its output
// layer.
#pragma once

#include <map>
#include <string>

#include <torchbridge/model_tensors.h>

namespace torchbridge::train {

// The tensors of a file, each once, under the names by which the model saves them. Drops a second
// name of a tensor, renames a tensor that the file has only under another name, and drops a name
// that the model does not have and the file ties to one that it has, or whose matrix is a copy of
// that: nanoGPT's `lm_head.weight`. Keeps the order. Throws TrainError if the model ties two
// tensors whose values differ in the file.
NamedTensors without_aliases(const NamedTensors& from, const ModelTensors& model,
                             const std::string& what);

// The metadata of a model's safetensors file: "format", and each other name with the name under
// which it is saved, as safetensors.torch.save_model writes it. Each tensor is in the file once:
// the format has no shared tensors.
std::map<std::string, std::string> model_metadata(const ModelTensors& model);

}  // namespace torchbridge::train
