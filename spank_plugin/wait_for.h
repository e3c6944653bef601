// Waits for a fact that has no descriptor to poll: another process's memory, a child's end.
#pragma once

#include <poll.h>

#include <chrono>

namespace torchbridge {

// True as soon as `fact()` is true, false where it is not within `limit`.
template <class Fact>
bool wait_for(std::chrono::milliseconds limit, Fact fact) {
  constexpr int kPauseMs = 5;
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!fact()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    poll(nullptr, 0, kPauseMs);
  }
  return true;
}

}  // namespace torchbridge
