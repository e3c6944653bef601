// Which checkpoint a run goes on from.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trainer_template/runtime/base/file_image.h"
#include "trainer_template/runtime/checkpoint_format/manifest.h"
#include "trainer_template/runtime/process_group/process_group.h"

namespace torchbridge::train {

struct SelectedCheckpoint {
  std::filesystem::path folder;  // of one checkpoint, all of whose files are whole
  Manifest manifest;
  FileImages images;  // of files that this rank needs whole, as they were compared; null where there was no memory
};

// The files of which this rank needs every byte: there is memory for their images.
using NeededFiles = std::function<std::vector<std::string>(const Manifest&)>;

// `resume` is "auto": the newest good one in `root`; "none"; or a checkpoint, or a folder of them. A damaged one is
// left out for the next older, with a line on stderr that says what is wrong with which file. Nothing where there is
// none to go on from. The files are divided among the ranks to be verified, but those that a rank needs it reads as a
// whole, once. Collective; throws TrainError, on all ranks, where all are damaged, where the one that was named is not
// there or damaged, and for "none" where there are some.
std::optional<SelectedCheckpoint> select_checkpoint(const std::filesystem::path& root, const std::string& resume,
                                                    ProcessGroup& group, const NeededFiles& needed = {});

// Throws TrainError where the run that wrote it had another --task.
void check_task(const SelectedCheckpoint& selected, const std::string& task);

}  // namespace torchbridge::train
