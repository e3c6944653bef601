#include "trainer_template/runtime/checkpoint/checkpoint_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <string>
#include <thread>

#include "bridge/net/random_token.h"
#include "trainer_template/runtime/base/console.h"
#include "trainer_template/runtime/base/errors.h"
#include "trainer_template/runtime/base/file_lock.h"
#include "trainer_template/runtime/checkpoint_format/checkpoint_files.h"
#include "trainer_template/runtime/checkpoint_format/publish.h"
#include "trainer_template/runtime/checkpoint_format/verify.h"

namespace torchbridge::train {
namespace {

namespace fs = std::filesystem;

const std::string kAdvice = "; give a --checkpoint-dir that all ranks can write to";
// NFS clients cache attributes for three seconds (acregmin).
constexpr std::chrono::seconds kVisibleTimeout{4};
constexpr std::chrono::milliseconds kRetry{50};

Socket lock_folder(const fs::path& folder) {
  const fs::path path = folder / ".lock";
  Socket lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.open())
    throw TrainError("cannot write to checkpoint folder '" + folder.string() + "': " + std::strerror(errno) + kAdvice);
  if (lock_file(lock, "checkpoint folder '" + folder.string() + "'")) return lock;
  throw TrainError("checkpoint folder '" + folder.string() +
                   "' is in use by another run; wait for it, end it (under Slurm: squeue, scancel), or give another "
                   "--checkpoint-dir");
}

// A step folder gets its name after all its files are written and synced. So a valid one without DONE is a checkpoint,
// and gets DONE. An invalid one was damaged later, and is renamed, not removed.
void resolve_steps_without_done(const fs::path& root) {
  std::map<fs::path, std::string> damaged;
  for (const std::int64_t step : steps_without_done(root)) {
    const fs::path folder = root / step_folder(step);
    const auto manifest = verified_manifest(folder);
    if (!manifest || manifest->state.step != step) {
      damaged[folder] = folder.string() + " has no " + kDoneFile + ", and " +
                        (manifest ? "its manifest is of another step" : manifest.error().message);
      continue;
    }
    real_files().remove(folder / kDoneFile);  // it may be a link or a folder
    mark_complete(real_files(), folder);
    print_message("checkpoint " + folder.string() + " has no " + kDoneFile +
                  ", but all its files are valid: " + kDoneFile + " is written");
  }
  if (!damaged.empty() && complete_steps(root).empty()) {
    throw TrainError(
        damaged.rbegin()->second +
        "; there is no complete checkpoint: to start from step 0, remove the folder or give another --checkpoint-dir");
  }
  for (const auto& [folder, fault] : damaged) rename_to_aside(real_files(), folder, fault);
}

}  // namespace

Socket acquire_folder(const fs::path& folder) {
  std::error_code error, ignored;
  if (!fs::is_directory(folder, ignored)) {
    if (fs::exists(folder, ignored))
      throw TrainError("checkpoint folder '" + folder.string() + "' is not a folder" + kAdvice);
    if (folder.has_parent_path()) fs::create_directories(folder.parent_path(), error);
    if (error)
      throw TrainError("cannot create checkpoint folder '" + folder.string() + "': " + error.message() + kAdvice);
    try {
      real_files().make_folder(folder);
    } catch (const TrainError& cause) {
      throw TrainError(cause.what() + kAdvice);
    }
  }
  Socket lock = lock_folder(folder);
  for (const fs::path& path : leftovers(folder)) real_files().remove(path);
  resolve_steps_without_done(folder);
  return lock;
}

bool wait_visible(const fs::path& path) {
  const auto deadline = std::chrono::steady_clock::now() + kVisibleTimeout;
  while (access(path.c_str(), F_OK) != 0) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(kRetry);
  }
  return true;
}

void check_shared(const fs::path& folder, ProcessGroup& group) {
  std::string name(kTemporaryPrefix);
  name += "seen-by-all-";
  name += group.broadcast(random_token());
  const fs::path token = folder / name;
  all_or_none(group, [&] {
    if (group.is_first()) real_files().open(token, FileLayer::Owner::kOne)->close();
  });
  all_or_none(group, [&] {
    if (!wait_visible(token)) {
      throw TrainError("checkpoint folder '" + folder.string() +
                       "' is not the same folder here as on rank 0; --checkpoint-dir must be shared by all nodes");
    }
    if (access(folder.c_str(), W_OK) != 0) {
      throw TrainError("cannot write to checkpoint folder '" + folder.string() + "': " + std::strerror(errno) +
                       kAdvice);
    }
  });
  all_or_none(group, [&] {
    if (group.is_first()) real_files().remove(token);
  });
}

}  // namespace torchbridge::train
