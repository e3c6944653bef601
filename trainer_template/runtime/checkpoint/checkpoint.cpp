#include "trainer_template/runtime/checkpoint/checkpoint.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/headeronly/version.h>

#include "bridge/net/random_token.h"
#include "trainer_template/runtime/base/console.h"
#include "trainer_template/runtime/checkpoint/checkpoint_folder.h"
#include "trainer_template/runtime/checkpoint/dcp.h"
#include "trainer_template/runtime/checkpoint/generators.h"
#include "trainer_template/runtime/checkpoint/load.h"
#include "trainer_template/runtime/checkpoint/save_thread.h"
#include "trainer_template/runtime/checkpoint/select_checkpoint.h"
#include "trainer_template/runtime/checkpoint/tied_weights.h"
#include "trainer_template/runtime/checkpoint_format/checkpoint_files.h"
#include "trainer_template/runtime/checkpoint_format/publish.h"
#include "trainer_template/runtime/ddp/parameter_sync.h"

namespace torchbridge::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStillRunning = "running";
constexpr std::size_t kRunDigits = 8;

// Blocks this thread until the copy in host memory is made, and the current stream until the copy from a GPU is made.
void wait_until_copied(const std::shared_future<void>& copied, const std::shared_ptr<const c10::Event>& from_gpu) {
  copied.wait();
  if (!from_gpu) return;
  const c10::Device device = from_gpu->device();
  from_gpu->block(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

}  // namespace

Checkpoints::Checkpoints(ProcessGroup& group, CheckpointOptions options, FileLayer& files)
    : group_(group), options_(std::move(options)), files_(files) {
  if (!enabled()) return;
  all_or_none(group_, [&] {
    if (group_.is_first()) lock_ = acquire_folder(options_.folder);
  });
  check_shared(options_.folder, group_);
  run_ = group_.broadcast(random_token().substr(0, kRunDigits));
}

Checkpoints::~Checkpoints() = default;

fs::path Checkpoints::folder_of(std::int64_t step) const { return options_.folder / step_folder(step); }

std::optional<Manifest> Checkpoints::resume(const ModelTensors& model, Optimizer& optimizer) {
  const auto selected = select_checkpoint(options_.folder, options_.resume, group_, needed_files(optimizer, group_));
  if (!selected) return std::nullopt;
  const Manifest& manifest = selected->manifest;
  wait_copied();
  all_or_none(group_, [&] {
    if (const auto task = options_.shown.find("task"); task != options_.shown.end())
      check_task(*selected, task->second);
    const std::string kind = optimizer.record().kind;
    if (!manifest.optimizer.kind.empty() && manifest.optimizer.kind != kind) {
      throw TrainError("checkpoint " + selected->folder.string() + " was written with --optimizer " +
                       manifest.optimizer.kind + ", this run has --optimizer " + kind + ": give --optimizer " +
                       manifest.optimizer.kind);
    }
    if (manifest.state.seed == options_.seed) return;
    throw TrainError("checkpoint " + selected->folder.string() + " was written with --seed " +
                     std::to_string(manifest.state.seed) + ", this run has --seed " + std::to_string(options_.seed) +
                     ": the order of samples differs; give --seed " + std::to_string(manifest.state.seed));
  });
  load_checkpoint(*selected, model, optimizer, group_);
  resumed_from_ = manifest.state.step;
  std::error_code ignored;
  if (enabled() && fs::equivalent(selected->folder.parent_path(), options_.folder, ignored))
    last_saved_ = options_.folder / selected->folder.filename();
  return manifest;
}

void Checkpoints::save(const TrainState& state, const ModelTensors& model, Optimizer& optimizer) {
  if (!enabled()) return;
  if (running_ && running_->step() == state.step) return;
  if (running_ && !end_running_save(options_.on_pending_save)) {
    if (group_.is_first())
      print_message("checkpoint of step " + std::to_string(state.step) + " skipped: the save of step " +
                    std::to_string(running_->step()) + " is still running");
    return;
  }
  if (last_saved_ == folder_of(state.step)) return;
  start(state, model, optimizer, options_.async ? Snapshot::CopyMode::kCopy : Snapshot::CopyMode::kReference);
  if (!options_.async) end_running_save(CheckpointOptions::OnPendingSave::kWait);
}

void Checkpoints::save_last(const TrainState& state, const ModelTensors& model, Optimizer& optimizer) {
  if (!enabled()) return;
  options_.bytes_per_s = 0;  // training has ended, and a job's time limit may be near
  if (running_) {
    running_->lift_rate_limit();
    end_running_save(CheckpointOptions::OnPendingSave::kWait);
  }
  if (last_saved_ != folder_of(state.step)) start(state, model, optimizer, Snapshot::CopyMode::kReference);
  finish();
}

// Collective. Returns whether the running save has ended; then all ranks have its result. The wait is in a collective,
// which fails if another rank dies.
bool Checkpoints::end_running_save(CheckpointOptions::OnPendingSave on_pending) {
  if (on_pending == CheckpointOptions::OnPendingSave::kWait) {
    running_->wait_written();
    group_.barrier();
  }
  std::string outcome;
  if (group_.is_first())
    outcome =
        on_pending == CheckpointOptions::OnPendingSave::kSkip && !running_->done() ? kStillRunning : running_->wait();
  outcome = group_.broadcast(outcome);
  if (outcome == kStillRunning) return false;
  if (outcome.empty()) {
    last_saved_ = folder_of(running_->step());
    resumed_from_.reset();  // later checkpoints are of this run
  }
  failure_ = outcome;
  running_.reset();
  snapshot_.clear();
  return true;
}

// Batch normalisation gives each rank other buffers, and DDP broadcasts those of rank 0 before the next step. The file
// gets those of rank 0 too, from copies: the buffers of this rank do not change. Collective.
NamedTensors Checkpoints::saved_tensors(const ModelTensors& model) {
  NamedTensors tensors = model.parameters;
  std::vector<at::Tensor> copies;
  for (const auto& [name, buffer] : model.buffers)
    tensors.emplace_back(name, copies.emplace_back(buffer.detach().clone()));
  if (group_.world_size() > 1) broadcast_values(copies, group_);
  return tensors;
}

void Checkpoints::start(const TrainState& state, const ModelTensors& model, Optimizer& optimizer,
                        Snapshot::CopyMode mode) {
  const int rank = group_.rank(), ranks = group_.world_size();
  Manifest manifest{.state = state,
                    .world_size = ranks,
                    .options = options_.shown,
                    .versions = {{"torch", TORCH_VERSION}, {"torchbridge", TORCHBRIDGE_VERSION}},
                    .optimizer = optimizer.record()};
  manifest.state.seed = options_.seed;

  // State that all ranks have is divided among them. State of one rank is written by that rank.
  snapshot_.add(kModelFile, saved_tensors(model), rank, ranks, model_metadata(model));
  const int shards = optimizer.shards();
  const bool is_sharded = shards > 1;
  if (!is_sharded) snapshot_.add(optimizer_file(0, 1), optimizer.state(), rank, ranks);
  if (is_sharded && rank < shards) {
    const NamedTensors own = optimizer.state();
    snapshot_.add(optimizer_file(rank, shards), own, 0, 1, shard_metadata(own, optimizer.ranges()));
  }
  snapshot_.add(rank_file(rank), generator_states(group_.device()));
  snapshot_.take(mode);

  const std::string name = step_folder(state.step) + "-" + run_ + "-" + std::to_string(saves_++);
  running_ = std::make_unique<SaveThread>(SaveRequest{
      .files = files_,
      .root = options_.folder,
      .temporary = options_.folder / (std::string(kTemporaryPrefix) + name),
      .snapshot = snapshot_,
      .manifest = std::move(manifest),
      .retention = {.keep = options_.keep, .keep_every = options_.keep_every},
      .resumed_from = resumed_from_,
      .bytes_per_s = options_.bytes_per_s,
      .low_priority = mode == Snapshot::CopyMode::kCopy,
      .rank = rank,
      .world_size = ranks,
      .store = group_.c10d()->getStore(),
      .key = "checkpoint/" + name,
  });
  optimizer.read_until(
      [copied = running_->copied(), from_gpu = snapshot_.copied()] { wait_until_copied(copied, from_gpu); });
}

void Checkpoints::wait_copied() const {
  if (running_) wait_until_copied(running_->copied(), snapshot_.copied());
}

void Checkpoints::finish() {
  if (running_) end_running_save(CheckpointOptions::OnPendingSave::kWait);
  all_or_none(group_, [&] {
    if (failure_.empty()) return;
    throw TrainError("the last state is not saved: " + failure_ +
                     (last_saved_.empty() ? "" : "; the newest checkpoint is " + last_saved_.string()));
  });
}

}  // namespace torchbridge::train
