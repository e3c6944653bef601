// Checkpoints of a running job: written so that a kill at any moment leaves the last good one, verified when read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "bridge/net/socket.h"
#include "trainer_template/runtime/base/file_layer.h"
#include "trainer_template/runtime/checkpoint/load.h"
#include "trainer_template/runtime/checkpoint/snapshot.h"
#include "trainer_template/runtime/checkpoint_format/manifest.h"
#include "trainer_template/runtime/optim/optimizer.h"
#include "trainer_template/runtime/process_group/process_group.h"
#include "trainer_template/runtime/tensors/named_tensors.h"

namespace torchbridge::train {

class SaveThread;

struct CheckpointOptions {
  enum class OnPendingSave { kWait, kSkip };

  std::filesystem::path folder;  // empty: no checkpoints are written
  std::int64_t every = 100;      // steps; 0: only at the end
  int keep = 3;                  // the newest ones
  std::int64_t keep_every = 0;   // and for good those whose step is a multiple of this; 0: none
  bool async = false;  // training goes on while this rank's share is copied in host memory, and written from there
  OnPendingSave on_pending_save =
      OnPendingSave::kWait;  // async: what a save does that finds the one before still being written
  double bytes_per_s = 0;  // that a rank writes at most, so that others get something of the disk too; not of the last
                           // state; 0: no limit
  std::uint64_t seed = 0;  // of the sampler; a checkpoint of another one is refused, for the order would break off
  std::map<std::string, std::string> shown;  // what was chosen for the run, kept in the manifest for its reader
  std::string resume = "auto";  // "auto": the newest good one in `folder`; "none"; or a checkpoint, or a folder of them
};

// All member functions but due(), enabled(), last_saved() and wait_copied() are collectives that fail on all ranks or
// on none. `folder` must be the same one for all ranks. An object that goes while a save runs gives it up: call
// save_last() or finish() before.
class Checkpoints {
 public:
  // Makes the folder (0700) where it is not there, checks that all ranks see and may write it, keeps other runs out of
  // it while this one lives, and removes what killed runs left unfinished. The files written go through `files`.
  Checkpoints(ProcessGroup& group, CheckpointOptions options, FileLayer& files = real_files());
  ~Checkpoints();

  // Loads model, optimizer and random generators from the checkpoint to go on from, and returns its manifest; nothing
  // and no change when there is none. A damaged one is left out for the next older one, with a line that says so. Newer
  // ones than the one taken are put aside as step-N.aside, for training is about to write them anew.
  std::optional<Manifest> resume(const ModelTensors& model, Optimizer& optimizer);

  bool due(std::int64_t step) const { return enabled() && options_.every > 0 && step % options_.every == 0; }

  // Writes a checkpoint of all this, each rank its share. The state's seed is filled in here. Does nothing without a
  // folder, or when this step is saved already or is being saved. A disk that does not take it is no error: rank 0
  // prints a line, the older checkpoints stay, and the next save tries again. With `async` it returns at once, and the
  // optimizer's next step waits until parameters and state are copied. Who writes them otherwise calls wait_copied()
  // before; such a write without it makes the save fail. Buffers are copied here. What is on a GPU is copied by a
  // stream of its own, for whose end the stream of the optimizer's step waits.
  void save(const TrainState& state, const ModelTensors& model, Optimizer& optimizer);

  // Of this rank: returns when a save that runs reads parameters and state no more; on a GPU, work that is given to the
  // current stream afterwards begins then.
  void wait_copied() const;

  // The same at the end of a run: it is neither left out nor left running, and a disk that does not take it is an
  // error, TrainError, for this state would be lost.
  void save_last(const TrainState& state, const ModelTensors& model, Optimizer& optimizer);

  // Waits for a save that is still running. Throws TrainError when the last one failed.
  void finish();

  bool enabled() const { return !options_.folder.empty(); }
  // Where the last complete one is, as far as this rank knows: with `async` since the last save() or finish(). Empty
  // when there is none.
  const std::filesystem::path& last_saved() const { return last_saved_; }

 private:
  bool end_running_save(CheckpointOptions::OnPendingSave busy);
  NamedTensors saved_tensors(const ModelTensors& model);
  void start(const TrainState& state, const ModelTensors& model, Optimizer& optimizer, Snapshot::Way way);
  std::filesystem::path folder_of(std::int64_t step) const;

  ProcessGroup& group_;
  CheckpointOptions options_;
  FileLayer& files_;
  Socket lock_;      // a descriptor that holds the folder's lock, on rank 0
  std::string run_;  // a word that names this run in temporary files; the same on all ranks
  int saves_ = 0;    // so many were begun
  std::filesystem::path last_saved_;
  std::optional<std::int64_t> resumed_from_;  // the step that resume() took, until a save of this run is complete
  std::string failure_;                       // of the last save that ended; empty when it was good
  Snapshot snapshot_;
  std::unique_ptr<SaveThread> running_;  // which reads the snapshot; null when none does
};

}  // namespace torchbridge::train
