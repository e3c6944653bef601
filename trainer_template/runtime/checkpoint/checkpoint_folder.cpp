#include <torchbridge/train/checkpoint/checkpoint_folder.h>

#include <fcntl.h>
#include <sys/file.h>
#include <torchbridge/net/random_token.h>
#include <torchbridge/train/checkpoint/checkpoint_files.h>
#include <torchbridge/train/errors.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

namespace torchbridge::train {
namespace {

namespace fs = std::filesystem;

const std::string kAdvice = "; give a --checkpoint-dir that all ranks can write to";
// A run whose launcher was killed takes a moment to end, and the same command may be given again at once.
constexpr std::chrono::seconds kLockPatience{5};
// NFS clients look again after three seconds (acregmin).
constexpr std::chrono::seconds kVisiblePatience{4};
constexpr std::chrono::milliseconds kRetry{50};

template <class Fact>
bool eventually(std::chrono::seconds patience, Fact&& fact) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!fact()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(kRetry);
  }
  return true;
}

Socket lock_folder(const fs::path& folder) {
  const fs::path path = folder / ".lock";
  Socket lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.open()) throw TrainError("cannot write to checkpoint folder '" + folder.string() + "': " + std::strerror(errno) + kAdvice);
  // Some network file systems cannot lock; they are used without.
  const auto is_mine = [&] { return flock(lock.descriptor(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK; };
  if (eventually(kLockPatience, is_mine)) return lock;
  throw TrainError("checkpoint folder '" + folder.string() +
                   "' is in use by another run; wait for it, end it (under Slurm: squeue, scancel), or give another --checkpoint-dir");
}

}  // namespace

Socket own_folder(const fs::path& folder) {
  std::error_code error, ignored;
  if (!fs::is_directory(folder, ignored)) {
    if (fs::exists(folder, ignored)) throw TrainError("checkpoint folder '" + folder.string() + "' is not a folder" + kAdvice);
    if (folder.has_parent_path()) fs::create_directories(folder.parent_path(), error);
    if (error) throw TrainError("cannot make checkpoint folder '" + folder.string() + "': " + error.message() + kAdvice);
    real_files().make_folder(folder);
  }
  Socket lock = lock_folder(folder);
  for (const fs::path& path : leftovers(folder)) real_files().remove(path);
  return lock;
}

bool is_seen(const fs::path& path) {
  return eventually(kVisiblePatience, [&] { return access(path.c_str(), F_OK) == 0; });
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
    if (!is_seen(token)) {
      throw TrainError("checkpoint folder '" + folder.string() +
                       "' is not the same folder here as on rank 0; --checkpoint-dir must be shared by all nodes");
    }
    if (access(folder.c_str(), W_OK) != 0) {
      throw TrainError("cannot write to checkpoint folder '" + folder.string() + "': " + std::strerror(errno) + kAdvice);
    }
  });
  all_or_none(group, [&] {
    if (group.is_first()) real_files().remove(token);
  });
}

}  // namespace torchbridge::train
