// Work that the training thread does not wait for, such as writes to a slow file system.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

namespace torchbridge::train {

// Done by one thread, in the order in which it was posted. For one caller.
class Background {
 public:
  // Throws TrainError, with `what` the thread does, where the system starts no more threads.
  explicit Background(const char* what);
  // Does what is left.
  ~Background() = default;
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Begun within some milliseconds: work that comes often is done several at once, so that it wakes the thread seldom.
  // `work` must not throw.
  void post(std::function<void()> work);
  // Returns when all that was posted is done.
  void drain();

 private:
  void run(const std::stop_token& stop);

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<std::function<void()>> posted_;
  bool is_working_ = false, is_drained_ = false;  // is_drained_: somebody waits in drain()
  std::jthread thread_;                           // the last one: it uses the others
};

}  // namespace torchbridge::train
