#include "task_report.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>

#include <torchbridge/host/oom_kills.h>
#include <torchbridge/net/address.h>
#include <torchbridge/task/error_file.h>
#include <torchbridge/task/failure.h>

#include "failure_desk.h"

namespace torchbridge {
namespace {

using std::chrono::milliseconds;
using std::chrono::system_clock;

constexpr unsigned kPatienceSeconds = 3;

// A text that is too long is left out rather than cut: half a name is another name.
template <std::size_t Size>
void copy(char (&target)[Size], const std::string& text) {
  if (text.size() < Size) std::memcpy(target, text.c_str(), text.size() + 1);
}

std::string absolute(const std::string& path) {
  if (path.empty() || path.starts_with('/')) return path;
  char folder[3072] = "";
  return getcwd(folder, sizeof folder) == nullptr ? std::string() : std::string(folder) + "/" + path;
}

std::string describe(const TaskRecord& record, int wait_status, system_clock::time_point time) {
  TaskFailure failure;
  failure.rank = record.rank;
  failure.node = host_name();
  failure.wait_status = wait_status;
  failure.time = time;
  failure.out_of_memory = oom_kills() > record.oom_kills;
  const system_clock::time_point start{milliseconds(record.start_ms)};
  if (record.error_file[0] != '\0') failure.reason = read_error_file(record.error_file, start);
  return describe(failure);
}

// Tells srun, or else the pipe.
void tell(const TaskRecord& record, system_clock::time_point time, const std::string& text, int pipe) {
  const DeskAddress desk{record.desk_host, record.desk_port, record.desk_token};
  if (!desk.host.empty() && tell_desk(desk, time, text)) return;
  [[maybe_unused]] const ssize_t size = write(pipe, text.data(), text.size());  // the reader may only lose the line
}

[[noreturn]] void run_teller(const TaskRecord& record, uid_t user, gid_t group, int wait_status,
                             system_clock::time_point time, int pipe) noexcept {
  // For a file on a server that is gone; slurmstepd blocks signals in its threads.
  sigset_t alarms;
  sigemptyset(&alarms);
  sigaddset(&alarms, SIGALRM);
  signal(SIGALRM, SIG_DFL);
  sigprocmask(SIG_UNBLOCK, &alarms, nullptr);
  alarm(kPatienceSeconds);
  const bool is_user = setgroups(0, nullptr) == 0 && setresgid(group, group, group) == 0 && setresuid(user, user, user) == 0;
  if (!is_user && geteuid() != user) _exit(EXIT_FAILURE);
  try {
    tell(record, time, describe(record, wait_status, time), pipe);
  } catch (const std::exception&) {
    _exit(EXIT_FAILURE);
  }
  _exit(EXIT_SUCCESS);
}

// The writer is the user's: he may stop it, keep the pipe open, or fill it.
std::string read_for(milliseconds patience, int pipe) {
  constexpr std::size_t kMost = 1 << 16;
  const auto deadline = std::chrono::steady_clock::now() + patience;
  std::string text;
  char bytes[4096];
  while (text.size() < kMost) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd readable{pipe, POLLIN, 0};
    const int ready = left.count() > 0 ? poll(&readable, 1, static_cast<int>(left.count())) : 0;
    if (ready < 0 && errno == EINTR) continue;
    const ssize_t size = ready > 0 ? read(pipe, bytes, sizeof bytes) : 0;
    if (size <= 0) break;
    text.append(bytes, static_cast<std::size_t>(size));
  }
  return text;
}

}  // namespace

void write_record(TaskRecord& record, const EnvMap& environment, int rank, const std::string& error_file) {
  record.rank = rank;
  record.start_ms = std::chrono::duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
  record.oom_kills = oom_kills();
  copy(record.error_file, absolute(error_file));
  if (const auto desk = DeskAddress::from(environment)) {
    copy(record.desk_host, desk->host);
    copy(record.desk_token, desk->token);
    record.desk_port = desk->port;
  }
  record.written = true;
}

std::string tell_failure(const TaskRecord& record, uid_t user, gid_t group, int wait_status) {
  const auto time = system_clock::now();
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {};
  const pid_t teller = fork();
  if (teller == 0) run_teller(record, user, group, wait_status, time, ends[1]);
  close(ends[1]);
  constexpr milliseconds kPatience = std::chrono::seconds(kPatienceSeconds + 1);
  const std::string text = teller < 0 ? std::string() : read_for(kPatience, ends[0]);
  close(ends[0]);
  // A process that was stopped does not end by itself, and the step would never end with it. It is still our child.
  if (teller > 0) kill(teller, SIGKILL);
  while (teller > 0 && waitpid(teller, nullptr, 0) < 0 && errno == EINTR) {
  }
  return text;
}

}  // namespace torchbridge
