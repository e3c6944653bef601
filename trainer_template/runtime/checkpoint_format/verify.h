// Compares the files of a checkpoint with the sizes and checksums in its manifest.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "bridge/base/result.h"
#include "trainer_template/runtime/checkpoint_format/manifest.h"
#include "trainer_template/runtime/formats/file_image.h"

namespace torchbridge::train {

// All functions throw TrainError if a file cannot be opened for a reason outside the file
// (read_file.h).

// The manifest of the checkpoint in `folder`. Compares its own checksum, but no other file.
Result<Manifest> read_manifest(const std::filesystem::path& folder);

// An image, of the size in the manifest, for each file of `names` that it lists: of those of which
// a rank needs all bytes. Null without enough memory: the file is only compared.
FileImages images_for(const Manifest& manifest, const std::vector<std::string>& names);

// Compares the size and checksums of the files with the manifest: all bytes of the files in `kept`,
// and part `shard` of `shards` (a rank each) of the other files; the parts together cover every
// byte. The error names the first file that is missing, not a regular file (links are not followed)
// or damaged. Without an error the images in `kept` hold the compared bytes.
Status verify_files(const std::filesystem::path& folder, const Manifest& manifest, int shard = 0,
                    int shards = 1, const FileImages& kept = {});

// All errors, in the order of the files. A damaged tensor is named if the header of its file can be
// read.
std::vector<std::string> all_faults(const std::filesystem::path& folder, const Manifest& manifest);

// read_manifest(), then verify_files().
Result<Manifest> verified_manifest(const std::filesystem::path& folder);

}  // namespace torchbridge::train
