#include "spank_plugin/shared_task_table.h"

#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>

#include "bridge/core/step_record.h"

namespace torchbridge {
namespace {

using std::chrono::milliseconds;
using std::chrono::system_clock;

// A text in memory that another process may change meanwhile: each byte is read once.
template <std::size_t kSize>
std::string read_text(const char (&text)[kSize]) {
  const volatile char* const bytes = text;
  std::string read;
  for (std::size_t i = 0; i < kSize; ++i) {
    const char byte = bytes[i];
    if (byte == '\0') break;
    read += byte;
  }
  return read;
}

template <class T>
T read_once(const T& value) {
  return *static_cast<const volatile T*>(&value);
}

// One that is a name in a folder, and no path out of it.
bool is_file_name(const std::string& name) {
  return name.find('/') == name.npos && name != "." && name != "..";
}

}  // namespace

struct SharedTaskTable::Shared {
  // Any value but 0 means true: a bool that holds another value than 0 and 1 has none.
  using Flag = std::atomic<std::uint8_t>;

  template <std::size_t kSize>
  struct SharedText {
    Flag is_taken, is_set, is_error;
    char text[kSize];

    bool take() { return is_taken.exchange(1) == 0; }
    void set(std::string_view value, bool error) {
      is_set = 0;
      text[value.copy(text, kSize - 1)] = '\0';
      is_error = error ? 1 : 0;
      is_set = 1;
    }
  };

  struct SharedRecord {
    Flag is_written;  // set last: the other members are valid
    Flag removes_file;
    std::int32_t rank, process;
    std::int64_t start_ms;  // since the epoch
    std::int64_t oom_kills;
    char error_file[256];
  };

  SharedText<4096> reason;
  SharedText<kMaxStepRecord + 1> answers[kAnswers];
  SharedRecord records[];
};

SharedTaskTable::SharedTaskTable(std::size_t tasks) {
  const std::size_t size = sizeof(Shared) + tasks * sizeof(Shared::SharedRecord);
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  shared_ = static_cast<Shared*>(memory);
  tasks_ = tasks;
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
  // The kernel counts some 800 bytes for a message, and each task sends one. Root may exceed
  // net.core.wmem_max.
  const int room = static_cast<int>(std::min<std::size_t>(tasks, 1 << 16) * 1024);
  setsockopt(ends[0], SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
  folders_in_ = Socket(ends[0]);
  folders_out_ = Socket(ends[1]);
}

void SharedTaskTable::write_record(std::size_t local_task, const TaskRecord& record) const {
  if (local_task >= tasks_) return;
  Shared::SharedRecord& shared = shared_->records[local_task];
  shared.rank = record.rank;
  shared.process = record.process;
  shared.start_ms =
      std::chrono::duration_cast<milliseconds>(record.start.time_since_epoch()).count();
  shared.oom_kills = record.oom_kills;
  shared.removes_file = record.removes_file ? 1 : 0;
  const bool fits = record.error_file.size() < sizeof shared.error_file;
  shared
      .error_file[fits ? record.error_file.copy(shared.error_file, sizeof shared.error_file) : 0] =
      '\0';
  shared.is_written = 1;
}

bool SharedTaskTable::has_record(std::size_t local_task) const {
  return local_task < tasks_ && shared_->records[local_task].is_written != 0;
}

std::optional<TaskRecord> SharedTaskTable::record_of(std::size_t local_task) const {
  // A time_point counts nanoseconds: later milliseconds would overflow it.
  constexpr std::int64_t kLatestMs =
      std::chrono::floor<milliseconds>(system_clock::duration::max()).count();
  if (!has_record(local_task)) return std::nullopt;
  const Shared::SharedRecord& shared = shared_->records[local_task];
  const std::int32_t rank = read_once(shared.rank);
  const std::int64_t start_ms = read_once(shared.start_ms);
  TaskRecord record{.rank = rank,
                    .process = read_once(shared.process),
                    .start = {},
                    .oom_kills = read_once(shared.oom_kills),
                    .error_file = read_text(shared.error_file),
                    .removes_file = shared.removes_file != 0};
  if (rank < 0 || start_ms < 0 || start_ms > kLatestMs || !is_file_name(record.error_file))
    return std::nullopt;
  record.start = system_clock::time_point(milliseconds(start_ms));
  return record;
}

bool SharedTaskTable::set_reason(const char* reason) const {
  if (shared_ && shared_->reason.take()) shared_->reason.set(reason, true);
  return shared_ != nullptr;
}

bool SharedTaskTable::has_reason() const { return shared_ && shared_->reason.is_set != 0; }

std::string SharedTaskTable::reason() const {
  return has_reason() ? read_text(shared_->reason.text) : std::string();
}

void SharedTaskTable::set_answer(Answer which, const Result<std::string>& answer) const {
  if (shared_) shared_->answers[which].set(answer ? *answer : answer.error().message, !answer);
}

std::optional<Result<std::string>> SharedTaskTable::answer(Answer which) const {
  if (!shared_ || shared_->answers[which].is_set == 0) return std::nullopt;
  const auto& answer = shared_->answers[which];
  std::string text = read_text(answer.text);
  if (answer.is_error != 0) return Error{std::move(text)};
  return text;
}

}  // namespace torchbridge
