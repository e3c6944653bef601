// Prints the content of a checkpoint or of a file of tensors.
#pragma once

#include <filesystem>

// Prints the manifest of a checkpoint and the tensors of each of its files, or the tensors of a
// safetensors file. Does not verify checksums. Throws TrainError.
void show(const std::filesystem::path& path);
