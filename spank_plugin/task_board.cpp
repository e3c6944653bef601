#include "task_board.h"

#include <poll.h>
#include <sys/mman.h>

#include <atomic>

#include <torchbridge/core/step_record.h>

namespace torchbridge {

struct TaskBoard::Shared {
  enum class Answer { kNone, kAwaited, kText, kError };

  std::atomic<bool> reporting, reported;
  std::atomic<Answer> answer;
  char text[kMaxStepRecord + 1];  // of the answer or the error
  TaskRecord records[];
};

namespace {

template <class Fact>
bool wait_for(std::chrono::milliseconds time, Fact fact) {
  constexpr int kPauseMs = 5;
  const auto deadline = std::chrono::steady_clock::now() + time;
  while (!fact()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    poll(nullptr, 0, kPauseMs);
  }
  return true;
}

}  // namespace

TaskBoard::TaskBoard(std::size_t tasks) {
  const std::size_t size = sizeof(Shared) + tasks * sizeof(TaskRecord);
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  shared_ = static_cast<Shared*>(memory);
  tasks_ = tasks;
}

TaskRecord* TaskBoard::record_of(std::size_t local_task) const {
  return local_task < tasks_ ? shared_->records + local_task : nullptr;
}

bool TaskBoard::may_report() const { return !shared_ || !shared_->reporting.exchange(true); }

void TaskBoard::set_reported() const {
  if (shared_) shared_->reported = true;
}

bool TaskBoard::wait_until_reported(std::chrono::milliseconds time) const {
  return shared_ && wait_for(time, [this] { return shared_->reported.load(); });
}

Result<std::string> TaskBoard::ask_once(const std::function<Result<std::string>()>& ask) const {
  using Answer = Shared::Answer;
  auto none = Answer::kNone;
  if (!shared_) return ask();
  if (shared_->answer.compare_exchange_strong(none, Answer::kAwaited)) {
    const auto found = ask();
    const std::string& text = found ? *found : found.error().message;
    shared_->text[text.copy(shared_->text, kMaxStepRecord)] = '\0';
    shared_->answer = found ? Answer::kText : Answer::kError;
    return found;
  }
  if (!wait_for(std::chrono::minutes(1), [this] { return shared_->answer != Answer::kAwaited; })) return ask();
  if (shared_->answer == Answer::kError) return Error{shared_->text};
  return std::string(shared_->text);
}

}  // namespace torchbridge
