// Converts checkpoints and safetensors files to files that torch.load reads.
#pragma once

#include <filesystem>

// `from` is a checkpoint, which becomes {"model", "optimizer", "step", "epoch", ...}, or a safetensors file, which
// becomes a plain state_dict. `to` must not exist. Throws TrainError, also for a damaged checkpoint.
void convert_to_torch(const std::filesystem::path& from, const std::filesystem::path& to);
