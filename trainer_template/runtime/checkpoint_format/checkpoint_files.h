// The folder of checkpoints as files: names, which are complete, which are whole, which to remove.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer_template/runtime/base/file_layer.h"
#include "trainer_template/runtime/checkpoint_format/manifest.h"

namespace torchbridge::train {

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kManifestFile = "manifest.json";
constexpr const char* kDoneFile = "DONE";  // written last: a folder without it is no checkpoint
constexpr std::string_view kAsideSuffix =
    ".aside";  // of a step's folder that was put aside: nothing looks at it any more
constexpr std::string_view kTemporaryPrefix = ".tmp-";  // of what is not finished, or half removed

std::string step_folder(std::int64_t step);                         // step-00000100
std::optional<std::int64_t> step_of_folder(std::string_view name);  // nothing for any other name
std::string optimizer_file(int shard, int shards);                  // optimizer-00000-of-00001.safetensors
bool is_optimizer_file(std::string_view name);
std::string rank_file(int rank);  // rank-00000.safetensors

// Whether it holds DONE, which is a file.
bool is_complete(const std::filesystem::path& folder);

// Steps whose folder in `root` is complete, newest first. Empty when there is no such folder.
std::vector<std::int64_t> complete_steps(const std::filesystem::path& root);
// Those whose folder is not: of a run that was killed between the folder's rename and DONE, or DONE was lost later.
std::vector<std::int64_t> steps_without_done(const std::filesystem::path& root);

// Folders in `root` that were put aside, by name.
std::vector<std::filesystem::path> aside_folders(const std::filesystem::path& root);

// What killed runs left behind in `root`: folders under temporary names.
std::vector<std::filesystem::path> leftovers(const std::filesystem::path& root);

// Writes parts as a new file, synced, and returns what the manifest must say about it.
FileRecord write_recorded(FileLayer& files, const std::filesystem::path& path,
                          const std::vector<std::string_view>& parts);

}  // namespace torchbridge::train
