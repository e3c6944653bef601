// Weights from files of Python's torch.save, read without executing anything.
#pragma once

#include <filesystem>

#include <torchbridge/train/named_tensors.h>
#include <torchbridge/train/checkpoint/pickle.h>

namespace torchbridge::train {

// Whether torch.save is likely to have written the file: by its beginning, or by its name (.pt, .pth).
bool is_torch_file(const std::filesystem::path& path);

// What was saved, without the tensors' elements. Throws TrainError, which names the file and what is wrong with it.
Pickled read_torch_file(const std::filesystem::path& path);

// The tensors of one dictionary in it, on the CPU, in its order. Tensors that share memory in Python do so here. Throws TrainError,
// which names file and key, where a value is no tensor or a key is there twice.
NamedTensors read_tensors(const std::filesystem::path& path, const PickledValue& dict);

// A model's state_dict: all that was saved, or what stands there as "model", "state_dict" or "model_state_dict". The prefix
// "module." of a model that DistributedDataParallel wraps is left out.
NamedTensors read_state_dict(const std::filesystem::path& path);

}  // namespace torchbridge::train
