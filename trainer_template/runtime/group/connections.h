// The connections of a group and of its subgroups: since when something waits for them, and their end when a rank is
// lost.
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
  using Cut = std::function<void()>;
  using Place = std::list<Cut>::iterator;

  // Where all has been cut already, the new ones are at once.
  Place add(Cut cut) {
    const std::scoped_lock lock(mutex_);
    if (is_cut_) cut();
    return cuts_.insert(cuts_.end(), std::move(cut));
  }
  void remove(Place place) {
    const std::scoped_lock lock(mutex_);
    cuts_.erase(place);
  }
  // Reads and writes fail from here on, also those that wait in other threads.
  void cut() {
    const std::scoped_lock lock(mutex_);
    if (is_cut_) return;
    is_cut_ = true;
    for (const Cut& cut : cuts_) cut();
  }

  // Each collective begins by this.
  void begin_collective() { latest_ = Clock::now(); }
  // Since the latest one began.
  std::chrono::milliseconds waited() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - latest_.load());
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::atomic<Clock::time_point> latest_{Clock::now()};
  std::mutex mutex_;
  std::list<Cut> cuts_;
  bool is_cut_ = false;
};

}  // namespace torchbridge::train
