#include "trainer_template/runtime/checkpoint/checkpoint_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <torchbridge/errors.h>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/net/host_names.h"
#include "bridge/net/random_token.h"
#include "trainer_template/runtime/base/console.h"
#include "trainer_template/runtime/base/file_support.h"
#include "trainer_template/runtime/checkpoint_format/checkpoint_files.h"
#include "trainer_template/runtime/checkpoint_format/publish.h"
#include "trainer_template/runtime/checkpoint_format/verify.h"

namespace torchbridge::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLockFile = ".lock";
const std::string kAdvice = "; give a --checkpoint-dir that all ranks can write to";

// The errors of `operation` get the advice.
template <class Operation>
void with_advice(Operation&& operation) {
  try {
    operation();
  } catch (const TrainError& cause) {
    throw TrainError(cause.what() + kAdvice);
  }
}

// A missing target of a link is not made: its file system may not be mounted.
void make_root(const fs::path& folder) {
  const auto check = [&](const std::error_code& error) {
    if (error)
      throw TrainError(formatted("cannot create checkpoint folder '{}': {}{}", folder.string(),
                                 error.message(), kAdvice));
  };
  std::error_code error, ignored;
  if (fs::is_directory(folder, error)) return;
  if (error == std::errc::too_many_symbolic_link_levels) check(error);
  error.clear();
  if (fs::exists(folder, ignored))
    throw TrainError(
        formatted("checkpoint folder '{}' is not a folder{}", folder.string(), kAdvice));
  if (fs::is_symlink(folder, ignored))
    throw TrainError(formatted(
        "checkpoint folder '{}' is a link to '{}', which does not exist: make that folder",
        folder.string(), fs::read_symlink(folder, ignored).string()));
  if (folder.has_parent_path()) fs::create_directories(folder.parent_path(), error);
  check(error);
  with_advice([&] { real_files().make_folder(folder); });
}

// Of the run that has, or had, the folder; empty if it cannot be read.
std::string holder_of(const fs::path& folder) {
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  const Socket file(::open((folder / kLockFile).c_str(), kFlags));
  std::string holder(256, '\0');
  const ssize_t size = ::read(file.descriptor(), holder.data(), holder.size());
  return printable(holder.substr(0, std::max<ssize_t>(size, 0)));
}

}  // namespace

FolderLock::FolderLock(const fs::path& folder)
    : folder_(folder),
      holder_(
          formatted("{} on {}, process {}", random_token().substr(0, 8), host_name(), getpid())) {
  const fs::path path = folder / kLockFile;
  // Who may write to the folder may lock it, and nobody else: flock() needs no right to write.
  struct stat status {
  }, own{};
  const mode_t writers = ::stat(folder.c_str(), &status) == 0 ? status.st_mode & 0222 : 0200;
  file_ = Socket(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, writers * 3));
  const auto check = [&](bool is_good) {
    if (!is_good)
      throw TrainError(formatted("cannot write to checkpoint folder '{}': {}: {}{}",
                                 folder.string(), kLockFile, std::strerror(errno), kAdvice));
  };
  check(file_.open());
  // The umask took some rights, or the folder has more since. In one as /tmp nobody else may lock.
  if ((status.st_mode & S_ISVTX) == 0 && ::fstat(file_.descriptor(), &own) == 0 &&
      own.st_uid == geteuid() && own.st_nlink == 1) {
    // The file's group is that of the process, unless the folder passes on its own.
    const bool is_of_group =
        own.st_gid == status.st_gid || ::fchown(file_.descriptor(), uid_t(-1), status.st_gid) == 0;
    (void)::fchmod(file_.descriptor(), (is_of_group ? writers : writers & 0202) * 3);
  }
  if (!lock_file(file_, formatted("checkpoint folder '{}'", folder.string())))
    throw TrainError(
        formatted("checkpoint folder '{}' is in use by another run ({}); wait for it, end it "
                  "(under Slurm: squeue, scancel), or give another --checkpoint-dir",
                  folder.string(), holder_of(folder)));
  check(ftruncate(file_.descriptor(), 0) == 0 &&
        pwrite(file_.descriptor(), holder_.data(), holder_.size(), 0) == std::ssize(holder_));
}

// Opens the file again: only then does NFS ask the server.
void FolderLock::check() const {
  const std::string holder = holder_of(folder_);
  if (!holder.empty() && holder != holder_)
    throw TrainError(formatted(
        "checkpoint folder '{}' is in use by another run ({}), which started later; give one of "
        "the runs another --checkpoint-dir",
        folder_.string(), holder));
}

namespace {

// A step folder gets its name after all its files are written and synced. So a valid one without
// DONE is a checkpoint, and gets DONE. An invalid one was damaged later, and is renamed, not
// removed.
void resolve_steps_without_done(const fs::path& root, FileLayer& files) {
  std::map<fs::path, std::string> damaged;
  for (const std::int64_t step : steps_without_done(root)) {
    const fs::path folder = root / step_folder(step);
    const auto manifest = verified_manifest(folder);
    if (!manifest || manifest->state.step != step) {
      damaged[folder] =
          formatted("{} has no {}, and {}", folder.string(), kDoneFile,
                    manifest ? "its manifest is of another step" : manifest.error().message);
      continue;
    }
    files.remove(folder / kDoneFile);  // it may be a link or a folder
    mark_complete(files, folder);
    print_message(formatted("checkpoint {} has no {}, but all its files are valid: {} is written",
                            folder.string(), kDoneFile, kDoneFile));
  }
  if (!damaged.empty() && complete_steps(root).empty()) {
    throw TrainError(damaged.rbegin()->second +
                     "; there is no complete checkpoint: to start from step 0, remove the folder "
                     "or give another --checkpoint-dir");
  }
  for (const auto& [folder, fault] : damaged) {
    try {
      rename_to_aside(files, folder, fault);
    } catch (const TrainError& error) {  // no run reads it under its name either
      print_message(formatted("{}; {}", fault, error.what()));
    }
  }
}

// What stays takes room, and is no checkpoint: NFS keeps a file for a process that has it open, and
// in a group's folder it may be another user's.
void remove_leftovers(const fs::path& root, FileLayer& files) {
  std::int64_t count = 0;
  std::string fault;
  for (const fs::path& path : leftovers(root)) {
    const std::string error = files.try_remove(path);
    if (!error.empty() && count++ == 0) fault = error;
  }
  if (count > 0)
    print_message(formatted("checkpoint folder '{}' keeps {} of earlier runs: {}", root.string(),
                            counted(count, "leftover"), fault));
}

// Of what only weakens a checkpoint.
void note_unsupported(const fs::path& root) {
  const auto note = [&](const std::string& reason, const char* lacks, const char* effect) {
    if (!reason.empty())
      print_message(
          formatted("checkpoint folder '{}' {} ({}): {}", root.string(), lacks, reason, effect));
  };
  const std::string files = why_unsupported(FileOperation::kSync, root),
                    folders = why_unsupported(FileOperation::kSyncFolder, root);
  note(files.empty() ? folders : files, "cannot be synced",
       "checkpoints may be lost or damaged if a machine fails");
  note(why_unsupported(FileOperation::kLink, root), "cannot contain links",
       "there will be no 'latest'");
}

}  // namespace

FolderLock acquire_folder(const fs::path& folder, FileLayer& files) {
  make_root(folder);
  FolderLock lock(folder);
  remove_leftovers(folder, files);
  resolve_steps_without_done(folder, files);
  renew_dangling_latest(files, folder);
  return lock;
}

bool wait_visible(const fs::path& path) {
  return becomes_visible([&] { return access(path.c_str(), F_OK) == 0; },
                         std::chrono::steady_clock::now() + kVisibleTimeout);
}

// A save in small: a folder to which all ranks write gets another name and is synced under it.
void check_saves(const fs::path& root, ProcessGroup& group, FileLayer& files) {
  const fs::path trial = root / (std::string(kTemporaryPrefix) + "trial-" +
                                 group.broadcast(random_token())),
                 renamed = trial.string() + "-renamed";
  all_or_none(group, [&] {
    if (group.is_first()) with_advice([&] { files.make_folder(trial); });
  });
  all_or_none(group, [&] {
    if (!wait_visible(trial))
      throw TrainError(
          formatted("checkpoint folder '{}' is not the same folder here as on rank 0; "
                    "--checkpoint-dir must be shared by all nodes",
                    root.string()));
    const std::vector<std::string_view> parts = {"trial"};
    with_advice([&] { files.write_synced(trial / rank_file(group.rank()), parts); });
  });
  all_or_none(group, [&] {
    if (!group.is_first()) return;
    with_advice([&] {
      files.link(trial.filename(), trial / kLatestLink);
      files.sync_folder(trial);
      files.rename(trial, renamed);
      files.sync_folder(root);
    });
    if (const std::string stays = files.try_remove(renamed); !stays.empty()) print_message(stays);
    note_unsupported(root);
  });
}

}  // namespace torchbridge::train
