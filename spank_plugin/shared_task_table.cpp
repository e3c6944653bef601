#include "spank_plugin/shared_task_table.h"

#include <sys/mman.h>
#include <sys/socket.h>

#include <atomic>

#include "bridge/core/step_record.h"
#include "spank_plugin/wait_for.h"

namespace torchbridge {

struct SharedTaskTable::Shared {
  // Written once, by the first task that takes it.
  template <std::size_t kSize>
  struct SharedText {
    std::atomic<bool> is_taken, is_set;
    bool is_error;
    char text[kSize];

    bool take() { return !is_taken.exchange(true); }
    void set(std::string_view value, bool error) {
      text[value.copy(text, kSize - 1)] = '\0';
      is_error = error;
      is_set = true;
    }
  };

  SharedText<4096> reason;
  SharedText<kMaxStepRecord + 1> answers[kQuestions];
  TaskRecord records[];
};

SharedTaskTable::SharedTaskTable(std::size_t tasks) {
  const std::size_t size = sizeof(Shared) + tasks * sizeof(TaskRecord);
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  shared_ = static_cast<Shared*>(memory);
  tasks_ = tasks;
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
  folders_in_ = Socket(ends[0]);
  folders_out_ = Socket(ends[1]);
}

TaskRecord* SharedTaskTable::record_of(std::size_t local_task) const {
  return local_task < tasks_ ? shared_->records + local_task : nullptr;
}

bool SharedTaskTable::set_reason(const char* reason) const {
  if (shared_ && shared_->reason.take()) shared_->reason.set(reason, true);
  return shared_ != nullptr;
}

const char* SharedTaskTable::reason() const {
  return shared_ && shared_->reason.is_set ? shared_->reason.text : nullptr;
}

Result<std::string> SharedTaskTable::ask_once(Question question,
                                              const std::function<Result<std::string>()>& ask) const {
  if (!shared_) return ask();
  auto& answer = shared_->answers[question];
  if (answer.take()) {
    auto found = ask();
    answer.set(found ? *found : found.error().message, !found);
    return found;
  }
  if (!wait_for(std::chrono::minutes(1), [&] { return answer.is_set.load(); })) return ask();
  if (answer.is_error) return Error{answer.text};
  return std::string(answer.text);
}

}  // namespace torchbridge
