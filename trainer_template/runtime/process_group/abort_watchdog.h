// Ends a process whose group broke and which does not get away from it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace torchbridge::train {

// gloo 2.11 may wait for a send on a connection that it has closed itself (its ring, in waitSend): until the
// collective's timeout, in the thread that trains or, when the group is released, in gloo's own. Nothing can wake it.
class AbortWatchdog {
 public:
  // `last_words` is called, then the process ends with exit code 1, unless this is gone `patience` after start(). It
  // may be called while the thread that trains does anything.
  AbortWatchdog(std::chrono::milliseconds patience, std::function<void()> last_words);
  ~AbortWatchdog();
  AbortWatchdog(const AbortWatchdog&) = delete;
  AbortWatchdog& operator=(const AbortWatchdog&) = delete;

  // Any thread, once.
  void start();

 private:
  const std::chrono::milliseconds patience_;
  const std::function<void()> last_words_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace torchbridge::train
