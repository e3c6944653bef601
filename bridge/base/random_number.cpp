#include "bridge/base/random_number.h"

#include <sys/random.h>

#include <algorithm>
#include <thread>

namespace torchbridge {

std::uint32_t random_number() {
  std::uint32_t number = 0;
  if (getrandom(&number, sizeof number, GRND_NONBLOCK) == sizeof number) return number;
  return static_cast<std::uint32_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

void wait_random_delay(std::chrono::milliseconds longest) {
  const auto spread = static_cast<std::uint32_t>(std::max<std::int64_t>(longest.count(), 0)) + 1;
  std::this_thread::sleep_for(std::chrono::milliseconds(random_number() % spread));
}

std::chrono::milliseconds request_spread(std::size_t nodes) {
  constexpr std::size_t kMost = 2000;
  return std::chrono::milliseconds(std::min(nodes, kMost));
}

}  // namespace torchbridge
