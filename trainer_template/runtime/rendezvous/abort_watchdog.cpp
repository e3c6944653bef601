#include "trainer_template/runtime/rendezvous/abort_watchdog.h"

#include <unistd.h>

#include <condition_variable>
#include <stop_token>
#include <system_error>
#include <utility>

namespace torchbridge::train {

AbortWatchdog::AbortWatchdog(std::chrono::milliseconds timeout, std::function<void()> report)
    : timeout_(timeout), report_(std::move(report)) {}

void AbortWatchdog::start() {
  const auto watch = [this](const std::stop_token& stop) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any stopped;
    if (stopped.wait_for(lock, stop, timeout_, [&] { return stop.stop_requested(); })) return;
    report_();
    _exit(1);
  };
  std::call_once(started_, [&] {
    try {
      thread_ = std::jthread(watch);
    } catch (const std::system_error&) {
      // It may be what the caller reports.
    }
  });
}

}  // namespace torchbridge::train
