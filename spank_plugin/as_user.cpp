#include "as_user.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>

namespace torchbridge {
namespace {

using std::chrono::milliseconds;

constexpr unsigned kTimeLimitS = 3;

[[noreturn]] void run_child(uid_t user, gid_t group, const std::function<std::string()>& act, int pipe) noexcept {
  // For a file on a server that is gone; slurmstepd blocks signals in its threads.
  sigset_t alarms;
  sigemptyset(&alarms);
  sigaddset(&alarms, SIGALRM);
  signal(SIGALRM, SIG_DFL);
  sigprocmask(SIG_UNBLOCK, &alarms, nullptr);
  alarm(kTimeLimitS);
  const bool is_user = setgroups(0, nullptr) == 0 && setresgid(group, group, group) == 0 && setresuid(user, user, user) == 0;
  if (!is_user && geteuid() != user) _exit(EXIT_FAILURE);
  try {
    const std::string text = act();
    [[maybe_unused]] const ssize_t size = write(pipe, text.data(), text.size());  // the reader may only lose the line
  } catch (const std::exception&) {
    _exit(EXIT_FAILURE);
  }
  _exit(EXIT_SUCCESS);
}

// The writer is the user's: he may stop it, keep the pipe open, or fill it.
std::string read_for(milliseconds time_limit, int pipe) {
  constexpr std::size_t kMost = 1 << 16;
  const auto deadline = std::chrono::steady_clock::now() + time_limit;
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

std::string run_as_user(uid_t user, gid_t group, const std::function<std::string()>& act) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {};
  const pid_t child = fork();
  if (child == 0) run_child(user, group, act, ends[1]);
  close(ends[1]);
  constexpr milliseconds kReadLimit = std::chrono::seconds(kTimeLimitS + 1);
  const std::string text = child < 0 ? std::string() : read_for(kReadLimit, ends[0]);
  close(ends[0]);
  // A process that was stopped does not end by itself, and the step would never end with it. It is still our child.
  if (child > 0) kill(child, SIGKILL);
  while (child > 0 && waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return text;
}

}  // namespace torchbridge
