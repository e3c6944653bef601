// manifest.json of a checkpoint: what it holds, how training stood (TrainState), and how each file can be proven whole.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "bridge/base/result.h"
#include "trainer_template/runtime/base/optimizer_record.h"
#include "trainer_template/runtime/base/train_state.h"

namespace torchbridge::train {

// A piece of a file: the header of a safetensors file, one of its tensors, or a part of these where the next rank went
// on.
struct FilePart {
  std::uint64_t size = 0;
  std::string xxh3;  // as in FileRecord

  bool operator==(const FilePart&) const = default;
};

struct FileRecord {
  std::string name;  // within the checkpoint's folder
  std::uint64_t size = 0;
  std::string
      xxh3;  // XXH3-128, 32 hexadecimal digits, as `xxh128sum` prints it; empty where several ranks wrote the file
  // From the first byte to the last one. May be empty where xxh3 is not.
  std::vector<FilePart> parts;

  bool operator==(const FileRecord&) const = default;
};

struct Manifest {
  static constexpr int kVersion = 2;

  TrainState state;                             // as the run that wrote it stood
  int world_size = 1;                           // of that run
  std::map<std::string, std::string> options;   // of the run that wrote it, for the reader's eye
  std::map<std::string, std::string> versions;  // of libraries
  OptimizerRecord optimizer;                    // its groups, which order parameters as Python numbers them
  std::vector<FileRecord> files;

  bool operator==(const Manifest&) const = default;
};

// Sealed: its last key, xxh3_128, is the checksum of all that is before it.
std::string to_json(const Manifest& manifest);

// Whether the text is as to_json() wrote it, to the last byte.
bool has_valid_checksum(std::string_view text);

// Does not look at the seal. An error says what is missing or wrong; unknown keys are left alone, another version is an
// error.
Result<Manifest> manifest_from_json(std::string_view text);

}  // namespace torchbridge::train
