#include "trainer_template/runtime/base/background.h"

#include <chrono>
#include <system_error>
#include <utility>

#include <torchbridge/errors.h>

#include "bridge/base/message_text.h"

namespace torchbridge::train {

Background::Background(const char* what) try
    : thread_([this](const std::stop_token& stop) { run(stop); }) {
} catch (const std::system_error& error) {
  throw TrainError(
      formatted("the thread that {} cannot be started: {}", what, error.code().message()));
}

void Background::post(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  posted_.push_back(std::move(work));
  if (posted_.size() == 1) changed_.notify_all();
}

void Background::drain() {
  std::unique_lock lock(mutex_);
  is_drained_ = true;
  changed_.notify_all();
  changed_.wait(lock, [this] { return posted_.empty() && !is_working_; });
  is_drained_ = false;
}

void Background::run(const std::stop_token& stop) {
  constexpr std::chrono::milliseconds kBatchTime{10};
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return !posted_.empty(); }) || !posted_.empty()) {
    changed_.wait_for(lock, stop, kBatchTime, [this] { return is_drained_; });
    const auto works = std::exchange(posted_, {});
    is_working_ = true;
    lock.unlock();
    for (const auto& work : works) work();
    lock.lock();
    is_working_ = false;
    changed_.notify_all();
  }
}

}  // namespace torchbridge::train
