#include "trainer_template/runtime/run/kill_when_stopped.h"

#include <csignal>
#include <ctime>
#include <thread>

namespace torchbridge::train {

void kill_when_stopped(std::chrono::milliseconds limit) {
  // A timer of the kernel goes on while the process is stopped, and SIGKILL ends a stopped process
  // too.
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGKILL;
  timer_t timer{};
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0)
    return;  // as without it: RLIMIT_SIGPENDING
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(limit);
  itimerspec end{};
  end.it_value.tv_sec = whole.count();
  end.it_value.tv_nsec = std::chrono::nanoseconds(limit - whole).count();
  // Here, because the process may be stopped before the thread runs.
  timer_settime(timer, 0, &end, nullptr);
  // The thread runs until the process ends, and uses nothing that is destroyed before.
  std::thread([timer, limit, end] {
    constexpr int kBeatsInLimit = 8;
    do {
      std::this_thread::sleep_for(limit / kBeatsInLimit);
    } while (timer_settime(timer, 0, &end, nullptr) == 0);
  }).detach();
}

}  // namespace torchbridge::train
