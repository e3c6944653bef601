#include <algorithm>
#include <iterator>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/headeronly/version.h>
#include <torchbridge/checkpoint.h>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/base/visible_text.h"
#include "bridge/net/random_token.h"
#include "trainer_template/runtime/base/console.h"
#include "trainer_template/runtime/base/number_text.h"
#include "trainer_template/runtime/base/own_name.h"
#include "trainer_template/runtime/checkpoint/checkpoint_folder.h"
#include "trainer_template/runtime/checkpoint/dcp.h"
#include "trainer_template/runtime/checkpoint/generators.h"
#include "trainer_template/runtime/checkpoint/load.h"
#include "trainer_template/runtime/checkpoint/safetensors.h"
#include "trainer_template/runtime/checkpoint/save_thread.h"
#include "trainer_template/runtime/checkpoint/select_checkpoint.h"
#include "trainer_template/runtime/checkpoint/tied_weights.h"
#include "trainer_template/runtime/checkpoint_format/checkpoint_files.h"
#include "trainer_template/runtime/checkpoint_format/publish.h"
#include "trainer_template/runtime/checkpoint_format/verify.h"
#include "trainer_template/runtime/ddp/parameter_sync.h"

namespace torchbridge::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStillRunning = "running";
constexpr std::size_t kRunDigits = 8;

// Blocks this thread until the copy in host memory is made, and the current stream until the copy
// from a GPU is made.
void wait_until_copied(const std::shared_future<void>& copied,
                       const std::shared_ptr<const c10::Event>& from_gpu) {
  copied.wait();
  if (!from_gpu) return;
  const c10::Device device = from_gpu->device();
  from_gpu->block(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

// A name of --resume that is the same from each working folder, in UTF-8; empty for auto and for
// `folder`, the run's own. A link, such as 'latest', keeps its name: it may point elsewhere later.
std::string begun_by(const std::string& resume, const fs::path& folder) {
  std::error_code error;
  if (resume == "none") return resume;
  if (resume == "auto" || fs::equivalent(resume, folder, error)) return "";
  fs::path path = fs::absolute(resume, error).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return in_utf8((path_of_resume(path.parent_path()) / path.filename()).string());
}

std::optional<Manifest> newest_manifest(const fs::path& folder) {
  for (const std::int64_t step : complete_steps(folder)) {
    if (auto manifest = read_manifest(folder / step_folder(step))) return *std::move(manifest);
  }
  return std::nullopt;
}

// Whether the checkpoint or folder is not in `folder`: a run of its own began from it.
bool is_in_other_folder(const std::string& resume, const fs::path& folder) {
  const fs::path path = path_of_resume(resume),
                 root = is_checkpoint(path) ? path.parent_path() : path;
  std::error_code error;
  return resume != "none" && !fs::equivalent(root, folder, error);
}

// What differs by nature from start to start does not count. The data are the same where their
// path or their contents are.
bool has_same_settings(const CheckpointOptions& options, const std::string& train_set,
                       const Manifest& newest) {
  std::map<std::string, std::string> now = options.shown, then = newest.options;
  const bool is_same_data =
      now["data"] == then["data"] || (!train_set.empty() && train_set == newest.state.train_set);
  for (const std::string& name : options.of_place) now.erase(name), then.erase(name);
  return is_same_data && now == then;
}

// It decides the direction of a step. All other options may change from run to run.
bool maximizes(const OptimizerRecord& optimizer) {
  return std::ranges::any_of(optimizer.groups, [](const OptimizerRecord::GroupRecord& group) {
    const auto found = group.options.find("maximize");
    return found != group.options.end() && found->second != 0;
  });
}

// Of a training that began in Python: no table of options shows them.
void report_other_optimizer(const SelectedCheckpoint& checkpoint, const OptimizerRecord& now) {
  const OptimizerRecord& then = checkpoint.manifest.optimizer;
  if (!checkpoint.manifest.is_of_python() || then.groups.empty() || now.groups.empty()) return;
  std::vector<std::string> values_then, values_now;
  for (const char* name : {"beta1", "beta2", "eps", "dampening", "nesterov"}) {
    const auto &old = then.groups.front().options, &own = now.groups.front().options;
    if (!old.contains(name) || !own.contains(name) || old.at(name) == own.at(name)) continue;
    values_then.push_back(formatted("{}={}", name, shortest(old.at(name))));
    values_now.push_back(formatted("{}={}", name, shortest(own.at(name))));
  }
  if (values_then.empty()) return;
  print_message(formatted("checkpoint {} is of an optimizer with {}; this run goes on with {}",
                          checkpoint.folder.string(), torchbridge::joined(values_then, ", "),
                          torchbridge::joined(values_now, ", ")));
}

}  // namespace

Checkpoints::Checkpoints(ProcessGroup& group, CheckpointOptions options, FileLayer& files)
    : group_(group),
      options_(std::move(options)),
      files_(files),
      snapshot_(std::make_unique<Snapshot>()) {
  if (!enabled()) return;
  link_ = group_.compared_link();
  all_or_none(group_, [&] {
    if (group_.is_first())
      lock_ = std::make_unique<FolderLock>(acquire_folder(options_.folder, files_));
  });
  check_saves(options_.folder, group_, files_);
  run_ = group_.broadcast(random_token().substr(0, kRunDigits));
}

Checkpoints::~Checkpoints() = default;

fs::path Checkpoints::folder_of(std::int64_t step) const {
  return options_.folder / step_folder(step);
}

// Collective. options.resume says how a run begins; started again it goes on.
std::string Checkpoints::resume_of_this_start(const std::string& train_set) {
  begun_by_ = begun_by(options_.resume, options_.folder);
  std::string now = options_.resume;
  all_or_none(group_, [&] {
    if (!group_.is_first() || !enabled() || begun_by_.empty()) return;
    const auto newest = newest_manifest(options_.folder);
    if (!newest || newest->begun_by != begun_by_) return;
    if (!is_in_other_folder(options_.resume, options_.folder) &&
        !has_same_settings(options_, train_set, *newest))
      return;
    print_message(
        formatted("checkpoint folder '{}' has checkpoints of this run: it goes on from the newest "
                  "one, not by --resume {}",
                  options_.folder.string(), printable(options_.resume)));
    now = "auto";
  });
  return group_.broadcast(now);
}

std::optional<ResumedRun> Checkpoints::resume(const ModelTensors& model, Optimizer& optimizer,
                                              const std::string& train_set) {
  const std::string now = resume_of_this_start(train_set);
  std::optional<ResumedRun> resumed;
  again_while_others_save(options_.folder, now, group_,
                          [&] { resumed = load(now, model, optimizer); });
  return resumed;
}

std::optional<ResumedRun> Checkpoints::load(const std::string& now, const ModelTensors& model,
                                            Optimizer& optimizer) {
  const auto selected =
      select_checkpoint(options_.folder, now, group_, needed_files(optimizer, group_));
  if (!selected) return std::nullopt;
  goes_back_ = now != "auto" && selected->folder == path_of_resume(now);
  const Manifest& manifest = selected->manifest;
  wait_copied();
  all_or_none(group_, [&] {
    if (const auto task = options_.shown.find("task"); task != options_.shown.end())
      check_task(*selected, task->second);
    const OptimizerRecord record = optimizer.record();
    const std::string& kind = record.kind;
    if (!manifest.optimizer.kind.empty() && manifest.optimizer.kind != kind) {
      throw TrainError(formatted(
          "checkpoint {} was written with --optimizer {}, this run has --optimizer {}: give "
          "--optimizer {}",
          selected->folder.string(), manifest.optimizer.kind, kind, manifest.optimizer.kind));
    }
    if (const bool then = maximizes(manifest.optimizer);
        !manifest.optimizer.groups.empty() && then != maximizes(record)) {
      throw TrainError(
          formatted("checkpoint {} is of an optimizer with maximize={}, unlike this run's",
                    selected->folder.string(), then ? "True" : "False"));
    }
    if (!manifest.seed || manifest.seed == options_.seed) return;
    throw TrainError(
        formatted("checkpoint {} was written with --seed {}, this run has --seed {}: the order of "
                  "samples differs; give --seed {}",
                  selected->folder.string(), *manifest.seed, options_.seed, *manifest.seed));
  });
  load_checkpoint(*selected, model, optimizer, group_);
  if (group_.is_first()) report_other_optimizer(*selected, optimizer.record());
  all_or_none(group_, [&] { resumed_kept_ = tensors_of_file(*selected, kKeptFile); });
  resumed_from_ = manifest.state.step;
  resumed_options_ = manifest.options;
  std::error_code ignored;
  if (enabled() && fs::equivalent(selected->folder.parent_path(), options_.folder, ignored))
    last_saved_ = options_.folder / selected->folder.filename();
  if (begun_by_.empty()) begun_by_ = manifest.begun_by;
  return ResumedRun{manifest.state, manifest.options, manifest.world_size};
}

void Checkpoints::keep(const std::string& name, const NamedTensors& tensors) {
  all_or_none(group_, [&] {
    const auto is_of = [&](const std::string& key) {
      return key == name || key.starts_with(name + ".");
    };
    const auto of_name = [&](const NamedTensors& all) {
      NamedTensors found;
      std::ranges::copy_if(all, std::back_inserter(found),
                           [&](const auto& entry) { return is_of(entry.first); });
      return found;
    };
    if (!is_own_name(name) || !of_name(kept_).empty())
      throw TrainError(
          formatted("the program keeps tensors as '{}': expected a name of small letters, digits "
                    "and underscores, once",
                    printable(name)));
    NamedTensors named;
    for (const auto& [key, tensor] : tensors)
      named.emplace_back(key.empty() ? name : name + "." + key, tensor);
    const NamedTensors values = of_name(resumed_kept_);
    if (!values.empty())
      copy_tensors(values, named, formatted("checkpoint of step {}", *resumed_from_));
    if (values.empty()) report_missing(name);
    kept_.insert(kept_.end(), named.begin(), named.end());
  });
}

void Checkpoints::report_missing(const std::string& name) const {
  if (resumed_from_ && group_.is_first())
    print_message(formatted("the checkpoint of step {} has no '{}': it begins with this start",
                            *resumed_from_, name));
}

void Checkpoints::save(const TrainState& state, const ModelTensors& model, Optimizer& optimizer) {
  if (!enabled()) return;
  if (running_ && running_->step() == state.step) return;
  if (running_ && !end_running_save(options_.on_pending_save)) {
    if (group_.is_first())
      print_message(formatted("checkpoint of step {} skipped: the save of step {} is still running",
                              state.step, running_->step()));
    return;
  }
  if (last_saved_ == folder_of(state.step)) return;
  start(state, model, optimizer, options_.async);
  if (!options_.async) end_running_save(CheckpointOptions::OnPendingSave::kWait);
}

void Checkpoints::save_and_wait(const TrainState& state, const ModelTensors& model,
                                Optimizer& optimizer) {
  if (!enabled()) return;
  options_.bytes_per_s = 0;  // training has ended, and a job's time limit may be near
  wait();
  if (last_saved_ == folder_of(state.step)) return;
  start(state, model, optimizer, false);
  end_running_save(CheckpointOptions::OnPendingSave::kWait);
}

void Checkpoints::save_last(const TrainState& state, const ModelTensors& model,
                            Optimizer& optimizer) {
  save_and_wait(state, model, optimizer);
  finish();
}

// Collective. Returns whether the running save has ended; then all ranks have its result. The wait
// is in a collective, which fails if another rank dies.
bool Checkpoints::end_running_save(CheckpointOptions::OnPendingSave on_pending) {
  const bool waits = on_pending == CheckpointOptions::OnPendingSave::kWait;
  if (waits) running_->wait_written();
  const bool all_have_written = group_.minimum(waits || running_->written() ? 1 : 0) == 1;
  std::string outcome;
  if (group_.is_first()) {
    if (all_have_written) running_->expect_reports();
    outcome = waits || running_->done() ? running_->wait() : kStillRunning;
  }
  outcome = group_.broadcast(outcome);
  if (outcome == kStillRunning) return false;
  if (outcome.empty()) {
    last_saved_ = folder_of(running_->step());
    resumed_from_.reset();  // later checkpoints are of this run
  }
  failure_ = outcome;
  running_.reset();
  snapshot_->clear();
  return true;
}

// Batch normalisation gives each rank other buffers, and DDP broadcasts those of rank 0 before the
// next step. The file gets those of rank 0 too, from copies: the buffers of this rank do not
// change. Collective.
NamedTensors Checkpoints::saved_tensors(const ModelTensors& model) {
  NamedTensors tensors = model.parameters;
  std::vector<at::Tensor> copies;
  for (const auto& [name, buffer] : model.buffers)
    tensors.emplace_back(name, copies.emplace_back(buffer.detach().clone()));
  if (group_.world_size() > 1) broadcast_values(copies, group_);
  return tensors;
}

// `copies`: training continues, and may change what is saved once it is copied.
void Checkpoints::start(const TrainState& state, const ModelTensors& model, Optimizer& optimizer,
                        bool copies) {
  all_or_none(group_, [&] {
    if (lock_) lock_->check();
  });
  const int rank = group_.rank(), ranks = group_.world_size();
  Manifest manifest{.state = state,
                    .world_size = ranks,
                    .seed = options_.seed,
                    .begun_by = begun_by_,
                    .options = options_.shown,
                    .versions = {{"torch", TORCH_VERSION}, {"torchbridge", TORCHBRIDGE_VERSION}},
                    .optimizer = optimizer.record()};

  // State that all ranks have is divided among them. State of one rank is written by that rank.
  snapshot_->add(kModelFile, saved_tensors(model), rank, ranks, model_metadata(model));
  const int shards = optimizer.shards();
  const bool is_sharded = shards > 1;
  if (!is_sharded) snapshot_->add(optimizer_file(0, 1), optimizer.state(), rank, ranks);
  if (is_sharded && rank < shards) {
    const NamedTensors own = optimizer.state();
    snapshot_->add(optimizer_file(rank, shards), own, 0, 1,
                   shard_metadata(own, optimizer.ranges()));
  }
  snapshot_->add(rank_file(rank), generator_states(group_.device()));
  if (!kept_.empty()) snapshot_->add(kKeptFile, kept_, rank, ranks);
  resumed_kept_.clear();
  snapshot_->take(copies ? Snapshot::CopyMode::kCopy : Snapshot::CopyMode::kReference);

  const std::string name = step_folder(state.step) + "-" + run_ + "-" + std::to_string(saves_++);
  running_ = std::make_unique<SaveThread>(SaveRequest{
      .files = files_,
      .root = options_.folder,
      .temporary = options_.folder / (std::string(kTemporaryPrefix) + name),
      .snapshot = *snapshot_,
      .manifest = std::move(manifest),
      .retention = {.keep = options_.keep, .keep_every = options_.keep_every},
      .resumed_from = resumed_from_,
      .bytes_per_s = options_.bytes_per_s,
      .low_priority = copies,
      .rank = rank,
      .link = link_,
      .name = name,
  });
  optimizer.read_until([copied = running_->copied(), from_gpu = snapshot_->copied()] {
    wait_until_copied(copied, from_gpu);
  });
}

void Checkpoints::wait_copied() const {
  if (running_) wait_until_copied(running_->copied(), snapshot_->copied());
}

void Checkpoints::wait() {
  if (!running_) return;
  running_->lift_rate_limit();
  end_running_save(CheckpointOptions::OnPendingSave::kWait);
}

void Checkpoints::finish() {
  if (running_) end_running_save(CheckpointOptions::OnPendingSave::kWait);
  all_or_none(group_, [&] {
    if (failure_.empty()) return;
    throw TrainError(formatted(
        "the last state is not saved: {}{}", failure_,
        last_saved_.empty() ? ""
                            : formatted("; the newest checkpoint is {}", last_saved_.string())));
  });
}

}  // namespace torchbridge::train
