// Ends a process that hangs in a broken group, or in a store that does not answer.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <thread>

namespace torchbridge::train {

// gloo 2.11 may wait for a send on a connection that it has closed itself (its ring, in waitSend),
// until the collective's timeout: in the thread that trains or, when the group is released, in
// gloo's own. Nothing can wake it.
class AbortWatchdog {
 public:
  // Unless this is destroyed within `timeout` after start(), calls `report` and ends the process
  // with exit code 1. `report` runs on a thread of its own, while the thread that trains may do
  // anything.
  AbortWatchdog(std::chrono::milliseconds timeout, std::function<void()> report);

  // Any thread, once. If the system starts no more threads, nothing watches; the caller goes on.
  void start();

 private:
  const std::chrono::milliseconds timeout_;
  const std::function<void()> report_;
  std::once_flag started_;
  std::jthread thread_;  // last member: its thread uses the others
};

}  // namespace torchbridge::train
