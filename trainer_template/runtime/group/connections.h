// What must end at once when a rank is lost: the connections of a group and of its subgroups.
#pragma once

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

 private:
  std::mutex mutex_;
  std::list<Cut> cuts_;
  bool is_cut_ = false;
};

}  // namespace torchbridge::train
