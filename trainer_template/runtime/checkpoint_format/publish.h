// How a written checkpoint becomes one that counts, and old ones go.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "trainer_template/runtime/base/file_layer.h"
#include "trainer_template/runtime/checkpoint_format/manifest.h"

namespace torchbridge::train {

constexpr const char* kLatestLink = "latest";  // in the folder of checkpoints: a link to the newest one

// Which checkpoints stay.
struct Retention {
  int keep = 3;                 // the newest ones
  std::int64_t keep_every = 0;  // and for good those whose step is a multiple of this; 0: none
};

// All of the steps but those that stay, newest first.
std::vector<std::int64_t> steps_to_remove(std::vector<std::int64_t> steps, const Retention& retention);

// Out of the way of all that looks for checkpoints, as FOLDER.aside (one of that name goes), with a line that says why,
// and that it is the user's to remove. Throws TrainError.
void rename_to_aside(FileLayer& files, const std::filesystem::path& folder, const std::string& why);

// Of a run that went on from `step`: the complete ones after it, which are not of this run. `latest` leads to `step`
// first.
void rename_newer_to_aside(FileLayer& files, const std::filesystem::path& root, std::int64_t step);

// The last steps of writing, after all files but the manifest are in `temporary`, synced: manifest, folder sync, rename
// to root/step-N (a folder of that name is put aside where it is complete, else it goes) and DONE. From there on it
// counts. Throws TrainError.
void publish(FileLayer& files, const std::filesystem::path& root, const std::filesystem::path& temporary,
             const Manifest& manifest);

// The last of these: DONE, synced. REQUIRES: all else in `folder` is synced.
void mark_complete(FileLayer& files, const std::filesystem::path& folder);

// Durable; a link to where no checkpoint is goes. Does nothing on a file system without links. Throws TrainError, also
// where a folder has that name.
void point_latest_to(FileLayer& files, const std::filesystem::path& root, std::int64_t step);

// After publish: `latest`, then the removal of those that do not stay, also where a folder is in the way of `latest`.
// What goes wrong is returned as one line, for the checkpoint is good; empty where nothing did.
std::string update_latest_and_prune(FileLayer& files, const std::filesystem::path& root, std::int64_t newest,
                                    const Retention& retention);

// After a publish that threw, or instead of one: removes what was written, as far as the disk lets it. The next run
// removes the rest.
void remove_unpublished(FileLayer& files, const std::filesystem::path& root, const std::filesystem::path& temporary,
                        std::int64_t step) noexcept;

}  // namespace torchbridge::train
