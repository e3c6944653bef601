// Prints the content of a checkpoint or of a file of tensors.
#pragma once

#include <filesystem>

// Prints the manifest of a checkpoint and the tensors of each of its files, or the tensors of a safetensors file, or
// the values of a file of torch.save, without executing it. Does not verify checksums. Throws TrainError.
void show(const std::filesystem::path& path);
