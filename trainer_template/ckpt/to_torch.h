// Checkpoints and safetensors files as files that torch.load reads.
#pragma once

#include <filesystem>

// `from` is a checkpoint, which becomes {"model", "optimizer", "step", "epoch", ...}, or a safetensors file, which
// becomes a plain state_dict. `to` must not exist. Throws TrainError; a damaged checkpoint is refused.
void convert_to_torch(const std::filesystem::path& from, const std::filesystem::path& to);
