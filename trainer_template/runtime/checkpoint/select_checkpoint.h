// Selects the checkpoint from which a run resumes.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <torchbridge/process_group.h>

#include "trainer_template/runtime/checkpoint_format/manifest.h"
#include "trainer_template/runtime/formats/file_image.h"

namespace torchbridge::train {

struct SelectedCheckpoint {
  std::filesystem::path folder;  // of one verified checkpoint
  Manifest manifest;
  FileImages images;  // verified bytes of the files that this rank needs whole; null if there was
                      // not enough memory
};

// The names of the files of which this rank needs every byte, and for whose images it has memory.
using NeededFiles = std::function<std::vector<std::string>(const Manifest&)>;

// `resume` is "auto": the newest valid checkpoint in `root`; "none"; or the path of a checkpoint,
// whatever its name, or of a folder of checkpoints. Skips a damaged checkpoint, with a message on
// stderr that names the file and the error, and takes the next older one. Returns nullopt if there
// is no checkpoint. The ranks divide the verification of the files, but each rank reads and
// verifies the files that it needs as a whole, once. Collective; throws TrainError on all ranks if
// all checkpoints are damaged, if the named one is missing or damaged, and for "none" if `root`
// contains one.
std::optional<SelectedCheckpoint> select_checkpoint(const std::filesystem::path& root,
                                                    const std::string& resume, ProcessGroup& group,
                                                    const NeededFiles& needed = {});

// Runs `load`, which selects a checkpoint and reads it. If that fails while another run saves
// there, as one that removes older checkpoints, it begins again with the newer one, up to ten times
// in all. Collective; `load` fails on all ranks or on none.
void again_while_others_save(const std::filesystem::path& root, const std::string& resume,
                             ProcessGroup& group, const std::function<void()>& load);

// Whether a --resume PATH names one checkpoint, which may have another name than step-N.
bool is_checkpoint(const std::filesystem::path& path);

// The checkpoint or folder of a --resume that is a path: the same from each working folder.
std::filesystem::path path_of_resume(const std::string& resume);

// Throws TrainError if the run that wrote the checkpoint had another --task.
void check_task(const SelectedCheckpoint& selected, const std::string& task);

}  // namespace torchbridge::train
