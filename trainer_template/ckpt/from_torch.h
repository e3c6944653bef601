// Converts files of torch.save to safetensors files.
#pragma once

#include <filesystem>

// Writes the model's state_dict in `from` to `to`, and the optimizer's state, by the names of the parameters, to
// `optimizer`, unless that is empty. Neither file may exist. Weights that share memory are written once; the metadata
// has their other names. Throws TrainError.
void convert_from_torch(const std::filesystem::path& from, const std::filesystem::path& to,
                        const std::filesystem::path& optimizer);
