#include "trainer_template/runtime/rendezvous/abort_watchdog.h"

#include <unistd.h>

#include <condition_variable>
#include <stop_token>
#include <utility>

namespace torchbridge::train {

AbortWatchdog::AbortWatchdog(std::chrono::milliseconds timeout, std::function<void()> report)
    : timeout_(timeout), report_(std::move(report)) {}

void AbortWatchdog::start() {
  std::call_once(started_, [this] {
    thread_ = std::jthread([this](const std::stop_token& stop) {
      std::mutex mutex;
      std::unique_lock lock(mutex);
      std::condition_variable_any stopped;
      if (stopped.wait_for(lock, stop, timeout_, [&] { return stop.stop_requested(); })) return;
      report_();
      _exit(1);
    });
  });
}

}  // namespace torchbridge::train
