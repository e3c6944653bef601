// Work that the training thread does not wait for, such as writes to a slow file system.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

namespace torchbridge::train {

// One thread that runs the posted functions in order. post() and drain() are for one caller.
class Background {
 public:
  // `what` the thread does, for the message. Throws TrainError if the system cannot start a thread.
  explicit Background(const char* what);
  // Runs what is still queued.
  ~Background() = default;
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Starts within 10 ms. Functions that are posted in this time run together, so frequent posts
  // wake the thread rarely. `work` must not throw.
  void post(std::function<void()> work);
  // Returns when all posted functions have run.
  void drain();

 private:
  void run(const std::stop_token& stop);

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<std::function<void()>> posted_;
  bool is_working_ = false, is_drained_ = false;  // is_drained_: drain() waits
  std::jthread thread_;                           // last member: its thread uses the others
};

}  // namespace torchbridge::train
