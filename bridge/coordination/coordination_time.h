// Times of the agents of a run: deadlines by the monotonic clock, and what clocks show for
// comparison between nodes.
#pragma once

#include <chrono>

namespace torchbridge {

using CoordinationTime = std::chrono::steady_clock::time_point;

// The first line about a wait for other agents comes after this time.
inline constexpr std::chrono::duration<double> kFirstReportAfter{10};

inline CoordinationTime after(CoordinationTime now, std::chrono::duration<double> time) {
  return now + std::chrono::duration_cast<CoordinationTime::duration>(time);
}

// Seconds since 1970.
inline double clock_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace torchbridge
