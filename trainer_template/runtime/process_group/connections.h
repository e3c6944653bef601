// The connections of a group and of its subgroups: when the latest collective on them began, whether one is in
// progress, and how to abort them all when a rank is lost.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <list>
#include <mutex>

namespace torchbridge::train {

// Any thread may call.
class Connections {
 public:
  using Abort = std::function<void()>;
  using Handle = std::list<Abort>::iterator;

  // A connection that is added after abort() is aborted at once.
  Handle add(Abort connection) {
    const std::scoped_lock lock(mutex_);
    if (is_aborted_) connection();
    return aborts_.insert(aborts_.end(), std::move(connection));
  }
  void remove(Handle handle) {
    const std::scoped_lock lock(mutex_);
    aborts_.erase(handle);
  }
  // From here on reads and writes fail, also those that other threads wait in.
  void abort() {
    const std::scoped_lock lock(mutex_);
    if (is_aborted_) return;
    is_aborted_ = true;
    for (const Abort& connection : aborts_) connection();
  }

  // Called at the start of each collective, and where its end is known, then.
  void begin_collective() {
    latest_ = Clock::now();
    ++in_progress_;
  }
  void end_collective() { --in_progress_; }
  // Since the latest one began.
  std::chrono::milliseconds waited() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - latest_.load());
  }
  // The same, or zero where all have ended.
  std::chrono::milliseconds waiting() const { return in_progress_ > 0 ? waited() : std::chrono::milliseconds(0); }

 private:
  using Clock = std::chrono::steady_clock;
  std::atomic<Clock::time_point> latest_{Clock::now()};
  std::atomic<int> in_progress_{0};
  std::mutex mutex_;
  std::list<Abort> aborts_;
  bool is_aborted_ = false;
};

}  // namespace torchbridge::train
