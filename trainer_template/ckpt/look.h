// What torchbridge-ckpt does: lists the checkpoints of a folder, verifies them, and shows what they
// hold.
#pragma once

#include <filesystem>

// Prints a line for each checkpoint, oldest first, without verifying it. Throws TrainError if there
// is none.
bool list(const std::filesystem::path& folder);

// Compares all checksums of a checkpoint, or of all checkpoints in a folder. A single safetensors
// file has no checksum: only its format is checked. Prints a line for each valid item and for each
// error. False if there is an error.
bool verify(const std::filesystem::path& path);

// Prints the manifest of a checkpoint and the tensors of each of its files, or the tensors of a
// safetensors file. Does not verify checksums. Throws TrainError.
void show(const std::filesystem::path& path);
