// Notices that a counter no longer changes.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>

namespace torchbridge::nccl {

// Any thread may call.
class StalledCounter {
 public:
  using Clock = std::chrono::steady_clock;
  explicit StalledCounter(Clock::duration limit) : limit_(limit) {}

  // Whether it has had this value for longer than the limit, as far as this was called meanwhile: a
  // process that was stopped begins anew.
  bool is_stalled(std::uint64_t value, Clock::time_point now) {
    const std::scoped_lock lock(mutex_);
    const bool was_away = now - asked_ > limit_ / 2;
    asked_ = now;
    if (value != value_ || was_away) {
      value_ = value;
      changed_ = now;
    }
    return now - changed_ > limit_;
  }

 private:
  const Clock::duration limit_;
  std::mutex mutex_;
  std::uint64_t value_ = 0;
  Clock::time_point asked_, changed_;
};

}  // namespace torchbridge::nccl
