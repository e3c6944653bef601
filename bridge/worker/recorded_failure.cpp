#include "bridge/worker/recorded_failure.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <ctime>

namespace torchbridge {
namespace {

// A handler may read these at any time; the paths are never freed.
std::atomic<const std::string*> path_of_file{nullptr};
std::atomic<pid_t> recorded_process{0};
std::atomic<pid_t> writer{0};  // the thread that writes, or has written
std::atomic<bool> is_written{false};
std::atomic<int> reserved{
    -1};  // a descriptor for the file: the failure may be that there are no more
static_assert(std::atomic<pid_t>::is_always_lock_free &&
              std::atomic<const std::string*>::is_always_lock_free);

// The process must not end before another thread has written the reason.
void wait_for_writer() {
  constexpr timespec kPause{0, 10'000'000};
  constexpr int kPauses = 500;
  for (int i = 0; i < kPauses && !is_written; ++i) nanosleep(&kPause, nullptr);
}

}  // namespace

void start_recording(const std::string& path) {
  path_of_file = new std::string(path);
  writer = 0;
  is_written = false;
  if (reserved < 0) reserved = open("/dev/null", O_RDONLY | O_CLOEXEC);
  recorded_process = getpid();
}

bool claim_failure() {
  if (recorded_process != getpid()) return false;
  pid_t no_thread = 0;
  const pid_t self = gettid();
  if (!writer.compare_exchange_strong(no_thread, self)) {
    if (writer != self) wait_for_writer();
    return false;
  }
  if (reserved >= 0) close(reserved.exchange(-1));
  return true;
}

void end_claim() { is_written = true; }

const char* recorded_path() { return path_of_file.load()->c_str(); }

}  // namespace torchbridge
