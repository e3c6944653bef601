// File and folder names in a folder of checkpoints, and which of them are complete.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer_template/runtime/checkpoint_format/file_layer.h"
#include "trainer_template/runtime/checkpoint_format/manifest.h"

namespace torchbridge::train {

constexpr const char* kModelFile = "model.safetensors";
// Tensors of the program's own; not there without any.
constexpr const char* kKeptFile = "kept.safetensors";
constexpr const char* kManifestFile = "manifest.json";
constexpr const char* kDoneFile = "DONE";  // written last: a folder without it is no checkpoint
constexpr std::string_view kAsideSuffix = ".aside";  // of a renamed step folder, which no run reads
constexpr std::string_view kTemporaryPrefix = ".tmp-";  // of an unfinished save or removal

std::string step_folder(std::int64_t step);                         // step-00000100
std::optional<std::int64_t> step_of_folder(std::string_view name);  // nullopt for any other name
std::string optimizer_file(int shard, int shards);  // optimizer-00000-of-00001.safetensors
bool is_optimizer_file(std::string_view name);
std::string rank_file(int rank);  // rank-00000.safetensors

// Whether the folder contains DONE as a regular file.
bool is_complete(const std::filesystem::path& folder);

// Steps whose folder in `root` is complete, newest first. Empty if `root` does not exist.
std::vector<std::int64_t> complete_steps(const std::filesystem::path& root);
// Steps whose folder is not complete: the run was killed between the rename of the folder and DONE,
// or DONE was lost.
std::vector<std::int64_t> steps_without_done(const std::filesystem::path& root);

// Step folders in `root` that were renamed to step-N.aside, by name.
std::vector<std::filesystem::path> aside_folders(const std::filesystem::path& root);

// Folders in `root` with temporary names, which killed runs left behind.
std::vector<std::filesystem::path> leftovers(const std::filesystem::path& root);

// Writes the parts as a new synced file and returns its record for the manifest.
FileRecord write_recorded(FileLayer& files, const std::filesystem::path& path,
                          const std::vector<std::string_view>& parts);

}  // namespace torchbridge::train
