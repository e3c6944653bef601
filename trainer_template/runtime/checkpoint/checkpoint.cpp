#include <torchbridge/train/checkpoint/checkpoint.h>

#include <ATen/CPUGeneratorImpl.h>
#include <fcntl.h>
#include <sys/file.h>
#include <torch/headeronly/version.h>
#include <torchbridge/core/env_map.h>
#include <torchbridge/train/checkpoint/checkpoint_files.h>
#include <torchbridge/train/checkpoint/choice.h>
#include <torchbridge/train/checkpoint/load.h>
#include <torchbridge/train/checkpoint/safetensors.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <iostream>
#include <random>
#include <sstream>
#include <thread>

namespace torchbridge::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGenerator = "cpu_generator";
const std::string kAdvice = "; give a --checkpoint-dir that all ranks can write to";
// A run whose launcher was killed takes a moment to end, and the same command may be given again at once.
constexpr std::chrono::seconds kLockPatience{5};
constexpr std::chrono::milliseconds kLockRetry{50};

void note(const std::string& text) { std::cerr << "trainer: " << text << std::endl; }

std::string random_name() {
  std::random_device device;
  std::ostringstream name;
  name << ".tmp-seen-by-all-" << std::hex << device() << device();
  return name.str();
}

Socket lock_folder(const fs::path& folder) {
  const fs::path path = folder / ".lock";
  Socket lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.open()) {
    throw TrainError("cannot write to checkpoint folder '" + folder.string() + "': " + std::strerror(errno) + kAdvice);
  }
  const auto deadline = std::chrono::steady_clock::now() + kLockPatience;
  // Some network file systems cannot lock; they are used without.
  while (flock(lock.descriptor(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    if (std::chrono::steady_clock::now() > deadline) {
      throw TrainError("checkpoint folder '" + folder.string() +
                       "' is in use by another run; wait for it, end it (under Slurm: squeue, scancel), or give another "
                       "--checkpoint-dir");
    }
    std::this_thread::sleep_for(kLockRetry);
  }
  return lock;
}

std::string to_text(const FileRecord& record) {
  return std::to_string(record.size) + " " + record.xxh3 + " " + record.name;
}

FileRecord record_from(const std::string& text) {
  FileRecord record;
  std::istringstream(text) >> record.size >> record.xxh3 >> record.name;
  return record;
}

}  // namespace

Checkpoints::Checkpoints(ProcessGroup& group, CheckpointOptions options)
    : group_(group), options_(std::move(options)) {
  if (!enabled()) return;
  all_or_none(group_, [&] {
    if (group_.is_first()) prepare_folder();
  });
  check_shared();
}

void Checkpoints::prepare_folder() {
  const fs::path& folder = options_.folder;
  std::error_code error, ignored;
  if (!fs::is_directory(folder, ignored)) {
    if (fs::exists(folder, ignored)) throw TrainError("checkpoint folder '" + folder.string() + "' is not a folder" + kAdvice);
    if (folder.has_parent_path()) fs::create_directories(folder.parent_path(), error);
    if (error) {
      throw TrainError("cannot make checkpoint folder '" + folder.string() + "': " + error.message() + kAdvice);
    }
    real_files().make_folder(folder);
  }
  lock_ = lock_folder(folder);
  for (const fs::path& path : leftovers(folder)) real_files().remove(path);
}

void Checkpoints::check_shared() {
  const fs::path token = options_.folder / group_.broadcast(random_name());
  all_or_none(group_, [&] {
    if (group_.is_first()) real_files().write_synced(token, {});
  });
  all_or_none(group_, [&] {
    if (access(token.c_str(), F_OK) != 0) {
      throw TrainError("checkpoint folder '" + options_.folder.string() +
                       "' is not the same folder here as on rank 0; --checkpoint-dir must be shared by all nodes");
    }
    if (access(options_.folder.c_str(), W_OK) != 0) {
      throw TrainError("cannot write to checkpoint folder '" + options_.folder.string() + "': " + std::strerror(errno) + kAdvice);
    }
  });
  all_or_none(group_, [&] {
    if (group_.is_first()) real_files().remove(token);
  });
}

void Checkpoints::put_aside_newer_than(std::int64_t step) {
  for (std::int64_t newer : complete_steps(options_.folder)) {
    if (newer <= step) break;
    const fs::path folder = options_.folder / step_folder(newer);
    const fs::path aside = folder.string() + ".aside";
    real_files().remove(aside);
    real_files().rename(folder, aside);
    note("put aside as " + aside.string() + ": newer than the checkpoint that training goes on from");
  }
}

std::optional<Manifest> Checkpoints::resume(const ModelTensors& model, Optimizer& optimizer) {
  const auto chosen = choose_checkpoint(options_.folder, options_.resume, group_);
  if (!chosen) return std::nullopt;
  const Manifest& manifest = chosen->manifest;
  all_or_none(group_, [&] {
    if (manifest.sampler_seed == options_.seed) return;
    throw TrainError("checkpoint " + chosen->folder.string() + " was written with --seed " + std::to_string(manifest.sampler_seed) +
                     ", this run has --seed " + std::to_string(options_.seed) + "; the order of samples would break off");
  });
  load_checkpoint(*chosen, model, optimizer, group_);
  all_or_none(group_, [&] {
    if (group_.is_first() && enabled()) put_aside_newer_than(manifest.step);
  });
  std::error_code ignored;
  if (enabled() && fs::equivalent(chosen->folder.parent_path(), options_.folder, ignored)) last_saved_ = options_.folder / chosen->folder.filename();
  return manifest;
}

void Checkpoints::save(Manifest progress, const ModelTensors& model, const Optimizer& optimizer) {
  const fs::path folder = options_.folder / step_folder(progress.step);
  if (!enabled() || last_saved_ == folder) return;
  FileLayer& files = real_files();
  const fs::path temporary = options_.folder / (".tmp-" + step_folder(progress.step));
  all_or_none(group_, [&] {
    if (!group_.is_first()) return;
    files.remove(temporary);
    files.make_folder(temporary);
  });

  std::string own_records;  // a line a file
  all_or_none(group_, [&] {
    const NamedTensors own = {{kGenerator, at::detail::getDefaultCPUGenerator().get_state()}};
    const std::map<std::string, std::string> metadata = {{"format", "pt"}};
    const auto write = [&](const std::string& name, const NamedTensors& tensors) {
      own_records += to_text(write_safetensors(files, temporary / name, tensors, metadata)) + "\n";
    };
    if (group_.is_first()) write(kModelFile, model.all());
    if (group_.rank() < optimizer.shards()) write(optimizer_file(group_.rank(), optimizer.shards()), optimizer.state());
    write(rank_file(group_.rank()), own);
  });
  progress.files.clear();
  for (const std::string& records : group_.all_gather(own_records)) {
    std::istringstream lines(records);
    for (std::string line; std::getline(lines, line);) progress.files.push_back(record_from(line));
  }

  all_or_none(group_, [&] {
    if (!group_.is_first()) return;
    progress.world_size = group_.world_size();
    progress.sampler_seed = options_.seed;
    progress.options = options_.shown;
    progress.versions = {{"torch", TORCH_VERSION}, {"torchbridge", TORCHBRIDGE_VERSION}};
    publish(files, options_.folder, temporary, progress, options_.keep);
  });
  last_saved_ = folder;
}

}  // namespace torchbridge::train
