// Checkpoints of a running job: a kill at any moment leaves the last complete one, and a resume
// verifies it; and a start from weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include <torchbridge/model_tensors.h>
#include <torchbridge/train_state.h>

namespace torchbridge::train {

class FolderLock;
class Heartbeat;
class Optimizer;
class ProcessGroup;
class SaveThread;
class Snapshot;

// How a run saves, and what it resumes.
struct CheckpointOptions {
  enum class OnPendingSave { kWait, kSkip };

  std::filesystem::path folder;  // empty: no checkpoints are written
  std::int64_t every = 100;      // steps; 0: only at the end
  int keep = 3;                  // the newest checkpoints to keep
  std::int64_t keep_every = 0;   // also keep all whose step is a multiple of this; 0: none
  bool async = false;  // training continues while this rank's shards are copied in host memory and
                       // written from there
  // Async: while the save before it is still running.
  OnPendingSave on_pending_save = OnPendingSave::kWait;
  double bytes_per_s = 0;  // limit of each rank, which leaves bandwidth to other jobs; not for the
                           // last state; 0: none
  // Of the sampler; a checkpoint with another seed, another order of samples, is rejected.
  std::uint64_t seed = 0;
  std::map<std::string, std::string> shown;  // the options of the run, for the manifest
  // Those of them that may differ between starts of one run: where its data lie, its device.
  std::set<std::string> of_place;
  // How the run begins. "auto": from the newest valid checkpoint in `folder`; "none"; or the path
  // of a checkpoint or of a folder of checkpoints.
  std::string resume = "auto";
};

// What resume() has loaded: the state, and of the run that saved it the options and the number of
// ranks.
struct ResumedRun {
  TrainState state;
  std::map<std::string, std::string> options;
  int world_size = 1;
};

class FileLayer;  // what writes the files: tests replace it
FileLayer& real_files();

// All member functions but due(), enabled(), last_saved() and wait_copied() are collectives that
// fail on all ranks or on none. `folder` must be the same for all ranks. The destructor cancels a
// save that is still running: call save_last(), wait() or finish() before.
class Checkpoints {
 public:
  // Creates the folder if it is missing, locks it against other runs for the lifetime of this
  // object, removes unfinished saves of killed runs, and checks that all ranks see the folder and
  // can save in it. All files are written with `files`.
  Checkpoints(ProcessGroup& group, CheckpointOptions options, FileLayer& files = real_files());
  ~Checkpoints();

  // Loads model, optimizer and random generators from the selected checkpoint and returns what
  // it has of the run. That is the newest one in the folder, with a message, where that is of a run
  // that began by the same options.resume: with the same options.shown, or from another folder.
  // `train_set`: fingerprint of the training data, or empty; the same data may lie elsewhere.
  // Returns nullopt and changes nothing if there is none. Skips a damaged checkpoint with a message
  // and takes the next older one. The first save after it renames newer checkpoints to
  // step-N.aside, because training writes those steps again.
  std::optional<ResumedRun> resume(const ModelTensors& model, Optimizer& optimizer,
                                   const std::string& train_set = "");

  // From now on every save has these tensors, as NAME.TENSOR, or as NAME if a tensor has no name.
  // They are the same on all ranks. If resume() loaded a checkpoint, they get its values; if that
  // lacks `name`, they stay as they are and rank 0 prints a message. Call it before the first save.
  // Changes between save() and the optimizer's next step need wait_copied(), as for parameters.
  // Throws TrainError for a name that is not of small letters, digits and underscores or is kept
  // already, and if shapes or types differ.
  void keep(const std::string& name, const NamedTensors& tensors);
  // Not collective. The message of keep() for any state that the checkpoint lacks.
  void report_missing(const std::string& name) const;

  bool due(std::int64_t step) const {
    return enabled() && options_.every > 0 && step % options_.every == 0;
  }

  // Writes a checkpoint, each rank its shards. Does nothing without a folder, or if this step is
  // saved already or is being saved. A failed write is no error: rank 0 prints a message, the older
  // checkpoints stay, and the next save tries again. Throws TrainError if another run has taken the
  // folder, as one can on a file system without locks. With `async` it returns at once, and the
  // optimizer's next step waits until parameters and state are copied. Other code that writes them
  // calls wait_copied() first; a write without it makes the save fail. Buffers are copied before
  // this returns. Tensors on a GPU are copied on a separate stream, and the stream of the
  // optimizer's step waits for its end.
  void save(const TrainState& state, const ModelTensors& model, Optimizer& optimizer);

  // Not collective. Returns when a running save no longer reads parameters and state of this rank.
  // On a GPU the current stream waits instead: work that is enqueued afterwards starts after the
  // copy.
  void wait_copied() const;

  // The same after the last step: the save is never skipped, and has ended on return.
  void save_and_wait(const TrainState& state, const ModelTensors& model, Optimizer& optimizer);

  // The same at the end of a run: a failed write throws TrainError, because this state would be
  // lost.
  void save_last(const TrainState& state, const ModelTensors& model, Optimizer& optimizer);

  // Waits for a running save, without the limit of bytes_per_s. That it fails is no error.
  void wait();
  // Waits for a running save. Throws TrainError if the last save failed.
  void finish();

  bool enabled() const { return !options_.folder.empty(); }
  // The folder of the last complete checkpoint of this run; with `async` it is updated by save()
  // and finish(). Empty if there is none.
  const std::filesystem::path& last_saved() const { return last_saved_; }
  // Whether resume() has loaded the checkpoint that options.resume names: newer ones may exist.
  bool goes_back() const { return goes_back_; }
  // The options of the run that wrote what resume() loaded; empty if it loaded nothing.
  const std::map<std::string, std::string>& resumed_options() const { return resumed_options_; }

 private:
  std::string resume_of_this_start(const std::string& train_set);
  std::optional<ResumedRun> load(const std::string& now, const ModelTensors& model,
                                 Optimizer& optimizer);
  bool end_running_save(CheckpointOptions::OnPendingSave on_pending);
  NamedTensors saved_tensors(const ModelTensors& model);
  void start(const TrainState& state, const ModelTensors& model, Optimizer& optimizer, bool copies);
  std::filesystem::path folder_of(std::int64_t step) const;

  ProcessGroup& group_;
  CheckpointOptions options_;
  FileLayer& files_;
  std::shared_ptr<Heartbeat> link_;   // for the reports of other ranks; null with one rank
  std::unique_ptr<FolderLock> lock_;  // on rank 0
  std::string run_;  // random id of this run in the names of temporary files; the same on all ranks
  int saves_ = 0;    // number of saves started
  std::filesystem::path last_saved_;
  // The step that resume() loaded, until a save of this run is complete.
  std::optional<std::int64_t> resumed_from_;
  bool goes_back_ = false;
  std::string begun_by_;  // Manifest::begun_by
  std::map<std::string, std::string> resumed_options_;
  NamedTensors kept_;          // by their names in files
  NamedTensors resumed_kept_;  // of the checkpoint that resume() loaded, until the first save
  std::string failure_;        // of the last save that ended; empty if it succeeded
  std::unique_ptr<Snapshot> snapshot_;
  std::unique_ptr<SaveThread> running_;  // reads *snapshot_; null if no save is running
};

// Loads only the model's weights, from a safetensors file. Collective.
void init_from(const std::filesystem::path& file, const ModelTensors& model, ProcessGroup& group);

}  // namespace torchbridge::train
