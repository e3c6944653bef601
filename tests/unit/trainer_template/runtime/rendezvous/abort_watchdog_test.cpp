#include "trainer_template/runtime/rendezvous/abort_watchdog.h"

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <system_error>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace torchbridge::train {
namespace {

void start_threads_until_none_starts() {
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t room_for_some_stacks =
      pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (200 << 20);
  const rlimit limit{room_for_some_stacks, RLIM_INFINITY};
  setrlimit(RLIMIT_AS, &limit);
  try {
    for (;;) std::thread([] { pause(); }).detach();
  } catch (const std::system_error&) {
    return;
  }
}

// A rank starts the watchdog before it reports its error, as that of a loader without threads.
TEST(AbortWatchdog, AProcessThatCanStartNoThreadGoesOn) {
  const auto start = [] {
    start_threads_until_none_starts();
    AbortWatchdog(std::chrono::seconds(60), [] {}).start();
    _exit(0);
  };
  EXPECT_EXIT(start(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace torchbridge::train
