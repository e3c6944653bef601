// What is in a checkpoint or a file of tensors, as text.
#pragma once

#include <filesystem>

// A checkpoint: its manifest and the tensors of each file; a safetensors file; a file of torch.save, which is not
// executed. Nothing is verified. Throws TrainError.
void show(const std::filesystem::path& path);
