// Publishes a written checkpoint, updates the link to the newest one, and removes old ones.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "trainer_template/runtime/checkpoint_format/file_layer.h"
#include "trainer_template/runtime/checkpoint_format/manifest.h"

namespace torchbridge::train {

// NFS clients cache attributes for three seconds (acregmin).
constexpr std::chrono::milliseconds kVisibleTimeout{4000};
// Of what another node has written: looks until it is there. False where it is not by then.
bool becomes_visible(const std::function<bool()>& is_there,
                     std::chrono::steady_clock::time_point deadline);

// In the folder of checkpoints: a link to the newest one.
constexpr const char* kLatestLink = "latest";

// Which checkpoints are kept.
struct Retention {
  int keep = 3;                 // the newest ones
  std::int64_t keep_every = 0;  // and all whose step is a multiple of this; 0: none
};

// The steps that are not kept, newest first.
std::vector<std::int64_t> steps_to_remove(std::vector<std::int64_t> steps,
                                          const Retention& retention);

// Renames `folder` to FOLDER.aside, which no run reads, and prints a message with the reason `why`.
// Replaces an earlier FOLDER.aside. Throws TrainError.
void rename_to_aside(FileLayer& files, const std::filesystem::path& folder, const std::string& why);

// For a run that resumed from `step`: renames the complete checkpoints after it, which are not of
// this run, to step-N.aside. Points `latest` to `step` first, so that it never points to a renamed
// folder.
void rename_newer_to_aside(FileLayer& files, const std::filesystem::path& root, std::int64_t step);

// The last steps of a save: manifest, folder sync, rename to root/step-N, DONE. A folder of that
// name is renamed to step-N.aside if it is complete, else removed. The checkpoint is complete with
// DONE. REQUIRES: all files but the manifest are in `temporary` and synced: one that is not there
// with its size within `visible`, as files of other nodes, is an error. Throws TrainError.
void publish(FileLayer& files, const std::filesystem::path& root,
             const std::filesystem::path& temporary, const Manifest& manifest,
             std::chrono::milliseconds visible = kVisibleTimeout);

// Writes DONE and syncs it. REQUIRES: all other files in `folder` are synced.
void mark_complete(FileLayer& files, const std::filesystem::path& folder);

// Makes `latest` a link to the checkpoint of `step`, synced; removes `latest` if there is no such
// checkpoint. Does nothing on a file system without links. Returns an error as text, also if
// `latest` is a folder; empty if there was none.
std::string point_latest_to(FileLayer& files, const std::filesystem::path& root, std::int64_t step);
// Where `latest` is a link to nothing, as after a quota of inodes was full, it gets the newest
// complete checkpoint. Prints an error.
void renew_dangling_latest(FileLayer& files, const std::filesystem::path& root);

// After publish(): updates `latest`, then removes the checkpoints that are not kept, also if
// `latest` cannot be updated. Returns an error as one line instead of throwing, because the new
// checkpoint is complete; empty if there was no error.
std::string update_latest_and_prune(FileLayer& files, const std::filesystem::path& root,
                                    std::int64_t newest, const Retention& retention);

// After a publish() that threw, or instead of one: removes the written files, unless DONE exists.
// Ignores errors: the next run removes the rest.
void remove_unpublished(FileLayer& files, const std::filesystem::path& root,
                        const std::filesystem::path& temporary, std::int64_t step) noexcept;

}  // namespace torchbridge::train
