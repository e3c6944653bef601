#include "trainer_template/runtime/rendezvous/abort_watchdog.h"

#include <unistd.h>

#include <utility>

namespace torchbridge::train {

AbortWatchdog::AbortWatchdog(std::chrono::milliseconds timeout, std::function<void()> report)
    : timeout_(timeout), report_(std::move(report)) {}

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
    if (ended_.wait_for(own, timeout_, [this] { return is_over_; })) return;
    own.unlock();
    report_();
    _exit(1);
  });
}

}  // namespace torchbridge::train
