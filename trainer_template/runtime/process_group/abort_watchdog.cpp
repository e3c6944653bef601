#include "trainer_template/runtime/process_group/abort_watchdog.h"

#include <unistd.h>

#include <utility>

namespace torchbridge::train {

AbortWatchdog::AbortWatchdog(std::chrono::milliseconds patience, std::function<void()> last_words)
    : patience_(patience), last_words_(std::move(last_words)) {}

AbortWatchdog::~AbortWatchdog() {
  {
    const std::scoped_lock lock(mutex_);
    is_over_ = true;
  }
  ended_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void AbortWatchdog::start() {
  const std::scoped_lock lock(mutex_);
  if (is_over_ || thread_.joinable()) return;
  thread_ = std::thread([this] {
    std::unique_lock own(mutex_);
    if (ended_.wait_for(own, patience_, [this] { return is_over_; })) return;
    own.unlock();
    last_words_();
    _exit(1);
  });
}

}  // namespace torchbridge::train
