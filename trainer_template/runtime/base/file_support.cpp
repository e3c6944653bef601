#include "trainer_template/runtime/base/file_support.h"

#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "bridge/base/message_text.h"
#include "trainer_template/runtime/base/console.h"

namespace torchbridge::train {
namespace {

struct FirstErrors {
  std::mutex mutex;
  std::map<std::pair<FileOperation, dev_t>, int> of;  // 0: supported
};

FirstErrors& first_errors() {
  static FirstErrors one;
  return one;
}

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kLockTimeout{5};
constexpr std::chrono::milliseconds kRetry{50};

}  // namespace

bool is_unsupported(FileOperation operation, dev_t device, int error) {
  // Of the disk, or one that may pass: these do not say what the file system can do.
  constexpr int kOfNow[] = {EIO, ENOSPC, EDQUOT, ETIMEDOUT, ESTALE, EINTR, EAGAIN};
  const bool is_of_now = std::ranges::count(kOfNow, error) > 0;
  FirstErrors& first = first_errors();
  const std::scoped_lock lock(first.mutex);
  const auto found = first.of.try_emplace({operation, device}, is_of_now ? 0 : error).first;
  return error != 0 && found->second == error;
}

std::string why_unsupported(FileOperation operation, const std::filesystem::path& folder) {
  struct stat status {};
  if (stat(folder.c_str(), &status) != 0) return {};
  FirstErrors& first = first_errors();
  const std::scoped_lock lock(first.mutex);
  const auto found = first.of.find({operation, status.st_dev});
  return found == first.of.end() || found->second == 0 ? "" : std::strerror(found->second);
}

int sync_descriptor(int descriptor) {
  const int error = fsync(descriptor) == 0 ? 0 : errno;
  struct stat status {};
  if (fstat(descriptor, &status) != 0) return error;
  const auto operation =
      S_ISDIR(status.st_mode) ? FileOperation::kSyncFolder : FileOperation::kSync;
  return is_unsupported(operation, status.st_dev, error) ? 0 : error;
}

bool lock_file(const Socket& file, const std::string& what) {
  const auto deadline = Clock::now() + kLockTimeout;
  while (flock(file.descriptor(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) {
      print_message(formatted(
          "{} cannot be locked ({}): a second run that uses it is not detected at its start", what,
          std::strerror(errno)));
      return true;
    }
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(kRetry);
  }
  return true;
}

}  // namespace torchbridge::train
