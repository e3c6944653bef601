// Whether the files of a checkpoint are those that were written.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "bridge/base/result.h"
#include "trainer_template/runtime/base/file_image.h"
#include "trainer_template/runtime/base/read_file.h"
#include "trainer_template/runtime/checkpoint_format/manifest.h"

namespace torchbridge::train {

// All throw TrainError where a file cannot be opened and is not at fault itself (read_file.h).

// The manifest of the checkpoint in `folder`, whose files are taken at its word.
Result<Manifest> read_manifest(const std::filesystem::path& folder);

// Files of which a rank needs all bytes: it keeps what it reads.
struct KeptImages {
  FileImages images;  // as large as the manifest says; null: there is no memory, and the file is only compared
  ReadFile::Way way = ReadFile::Way::kCached;
};

// Those files of these names that the manifest has, with memory as far as there is some.
FileImages images_for(const Manifest& manifest, const std::vector<std::string>& names);

// Compares size and checksum of the files with the manifest: of those that a rank needs whole all of it, of the others
// all, or what falls to `shard` of `shards` readers (a rank each), who together see every one. The error names the
// first file that is missing, no regular file (a link is not followed) or damaged; without one, what is kept is what
// was compared.
Status verify_files(const std::filesystem::path& folder, const Manifest& manifest, int shard = 0, int shards = 1,
                    const KeptImages& kept = {});

// All that is wrong with them, in the order of the files; a tensor that is damaged is named where its file's header can
// be read.
std::vector<std::string> all_faults(const std::filesystem::path& folder, const Manifest& manifest);

// read_manifest() and verify_files().
Result<Manifest> verified_manifest(const std::filesystem::path& folder);

}  // namespace torchbridge::train
