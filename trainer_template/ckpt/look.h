// What there is in a folder of checkpoints, and whether it is whole.
#pragma once

#include <filesystem>

// Prints a line a checkpoint, oldest first, without verifying it. False where there is none.
bool list(const std::filesystem::path& folder);

// Compares everything that has a checksum: a checkpoint, all in a folder, a file of torch.save. Of a safetensors file
// alone it can only say whether it is well formed. Prints a line for each that is whole and one for each fault. False
// where there is a fault.
bool verify(const std::filesystem::path& path);
