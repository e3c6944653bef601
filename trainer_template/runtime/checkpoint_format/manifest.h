// manifest.json of a checkpoint: the state of the training (TrainState), and size and checksums of
// each file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <torchbridge/train_state.h>

#include "bridge/base/result.h"

namespace torchbridge::train {

// A part of a file with its own checksum: the header of a safetensors file, one of its tensors, or
// a part of these where the range of a rank ends.
struct FilePart {
  std::uint64_t size = 0;
  std::string xxh3;  // as in FileRecord

  bool operator==(const FilePart&) const = default;
};

struct FileRecord {
  std::string name;  // within the checkpoint's folder
  std::uint64_t size = 0;
  std::string xxh3;  // XXH3-128 in 32 hexadecimal digits, like `xxh128sum`; empty if several ranks
                     // wrote the file
  // All bytes in order. May be empty if xxh3 is not.
  std::vector<FilePart> parts;

  bool operator==(const FileRecord&) const = default;
};

struct Manifest {
  static constexpr int kVersion = 2;

  TrainState state;                             // of the run that wrote it
  int world_size = 1;                           // of that run
  std::optional<std::uint64_t> seed;            // of its sampler; not known of Python's
  std::string begun_by;                         // --resume by which it began; empty: auto
  std::map<std::string, std::string> options;   // of the run that wrote it, for people
  std::map<std::string, std::string> versions;  // of libraries
  // Its groups list the parameters in the order in which Python numbers them.
  OptimizerRecord optimizer;
  std::vector<FileRecord> files;

  // It was converted by `python -m torchbridge.convert`.
  bool is_of_python() const { return !versions.contains("torchbridge"); }
  bool operator==(const Manifest&) const = default;
};

// The last key, xxh3_128, is the checksum of all text before it.
std::string to_json(const Manifest& manifest);

// Whether the text ends with the checksum of the text before it, so it is what to_json() wrote, to
// the last byte.
bool has_valid_checksum(std::string_view text);

// Does not compare the checksum. An error names what is missing or wrong. Ignores unknown keys;
// another version is an error.
Result<Manifest> manifest_from_json(std::string_view text);

}  // namespace torchbridge::train
