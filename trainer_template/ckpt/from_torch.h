// Files of torch.save as safetensors files.
#pragma once

#include <filesystem>

// Writes the model's state_dict in `from` as `to`; and the optimizer's state, by the names of parameters, as
// `optimizer`, unless that is empty. Neither must exist. Weights that share memory are written once, the other names
// into the metadata. Throws TrainError.
void convert_from_torch(const std::filesystem::path& from, const std::filesystem::path& to,
                        const std::filesystem::path& optimizer);
