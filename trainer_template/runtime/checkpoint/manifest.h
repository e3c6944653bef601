// manifest.json of a checkpoint: what it holds, how training stood, and how each file can be proven whole.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <torchbridge/core/result.h>
#include <torchbridge/train/data/sampler.h>
#include <torchbridge/train/optim/optimizer_record.h>

namespace torchbridge::train {

// A piece of a file: the header of a safetensors file, one of its tensors, or a part of these where the next rank went on.
struct FilePart {
  std::uint64_t size = 0;
  std::string xxh3;       // as in FileRecord

  bool operator==(const FilePart&) const = default;
};

struct FileRecord {
  std::string name;       // within the checkpoint's folder
  std::uint64_t size = 0;
  std::string xxh3;       // XXH3-128, 32 hexadecimal digits, as `xxh128sum` prints it; empty where several ranks wrote the file
  // From the first byte to the last one. May be empty where xxh3 is not.
  std::vector<FilePart> parts;

  bool operator==(const FileRecord&) const = default;
};

// In a manifest's state: how long training took so far, from start to start and without what a kill has undone. It differs from run to run.
constexpr const char* kRunSeconds = "run.seconds";
// And how many samples an epoch was divided from.
constexpr const char* kTrainSamples = "train_set.samples";

struct Manifest {
  static constexpr int kVersion = 2;

  std::string run;                              // id of the training, the same over all its starts; empty: begun by a version without ids
  std::int64_t step = 0;                        // optimizer steps done
  SamplerPosition position;                     // of the next sample
  std::int64_t samples_seen = 0;                // by all ranks, in all epochs
  int world_size = 1;                           // of the run that wrote it
  std::uint64_t sampler_seed = 0;
  std::string train_set;                        // fingerprint of what was trained on; empty: not known
  std::map<std::string, std::string> options;   // of the run that wrote it, for the reader's eye
  std::map<std::string, std::string> versions;  // of libraries
  std::vector<std::vector<std::size_t>> buckets;  // DDP's, as rebuilt after its first step: makes resuming bit-exact
  std::map<std::string, double> state;            // of what is not a tensor: "grad_scaler.scale", "plateau.best" ...
  OptimizerRecord optimizer;                      // its groups, which order parameters as Python numbers them
  std::vector<FileRecord> files;

  bool operator==(const Manifest&) const = default;
};

// Of its state; 0 where that has none.
double run_seconds(const Manifest& manifest);

// Sealed: its last key, xxh3_128, is the checksum of all that is before it.
std::string to_json(const Manifest& manifest);

// Whether the text is as to_json() wrote it, to the last byte.
bool is_sealed(std::string_view text);

// Does not look at the seal. An error says what is missing or wrong; unknown keys are left alone, another version is an error.
Result<Manifest> manifest_from_json(std::string_view text);

}  // namespace torchbridge::train
