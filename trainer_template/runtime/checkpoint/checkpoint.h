// Checkpoints of a running job: written so that a kill at any moment leaves the last good one, verified when read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include <torchbridge/net/socket.h>
#include <torchbridge/train/checkpoint/load.h>
#include <torchbridge/train/checkpoint/manifest.h>
#include <torchbridge/train/named_tensors.h>
#include <torchbridge/train/optim/optimizer.h>
#include <torchbridge/train/group/process_group.h>

namespace torchbridge::train {

struct CheckpointOptions {
  std::filesystem::path folder;   // empty: no checkpoints are written
  std::int64_t every = 100;       // steps; 0: only at the end
  int keep = 3;
  std::uint64_t seed = 0;         // of the sampler; a checkpoint of another one is refused, for the order would break off
  std::map<std::string, std::string> shown;  // what was chosen for the run, kept in the manifest for its reader
  std::string resume = "auto";    // "auto": the newest good one in `folder`; "none"; or a checkpoint, or a folder of them
};

// All member functions are collectives that fail on all ranks or on none. `folder` must be the same one for all ranks.
class Checkpoints {
 public:
  // Makes the folder (0700) where it is not there, checks that all ranks see and may write it, keeps other runs out of it
  // while this one lives, and removes what killed runs left unfinished.
  Checkpoints(ProcessGroup& group, CheckpointOptions options);

  // Loads model, optimizer and random generators from the checkpoint to go on from, and returns its manifest; nothing and
  // no change when there is none. A damaged one is left out for the next older one, with a line that says so. Newer ones
  // than the one taken are put aside as step-N.aside, for training is about to write them anew.
  std::optional<Manifest> resume(const ModelTensors& model, Optimizer& optimizer);

  bool due(std::int64_t step) const { return enabled() && options_.every > 0 && step % options_.every == 0; }

  // Writes a checkpoint of all this. `progress` says how far training is; the rest of it is filled in here. Does
  // nothing without a folder, or when this step is saved already.
  void save(Manifest progress, const ModelTensors& model, const Optimizer& optimizer);

  bool enabled() const { return !options_.folder.empty(); }
  // Where the last one is; empty when there is none.
  const std::filesystem::path& last_saved() const { return last_saved_; }

 private:
  void prepare_folder();
  void check_shared();
  void put_aside_newer_than(std::int64_t step);

  ProcessGroup& group_;
  CheckpointOptions options_;
  Socket lock_;  // a descriptor that holds the folder's lock, on rank 0
  std::filesystem::path last_saved_;
};

}  // namespace torchbridge::train
