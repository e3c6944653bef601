#include "trainer_template/runtime/base/file_lock.h"

#include <sys/file.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "bridge/base/message_text.h"
#include "trainer_template/runtime/base/console.h"

namespace torchbridge::train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kLockTimeout{5};
constexpr std::chrono::milliseconds kRetry{50};

}  // namespace

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
