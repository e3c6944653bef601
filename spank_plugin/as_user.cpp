#include "as_user.h"

#include <grp.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>

namespace torchbridge {
namespace {

using std::chrono::milliseconds;

[[noreturn]] void run_child(uid_t user, gid_t group, const std::function<void()>& act) noexcept {
  const bool is_user =
      setgroups(0, nullptr) == 0 && setresgid(group, group, group) == 0 && setresuid(user, user, user) == 0;
  if (!is_user && geteuid() != user) _exit(EXIT_FAILURE);
  try {
    act();
  } catch (const std::exception&) {
    _exit(EXIT_FAILURE);
  }
  _exit(EXIT_SUCCESS);
}

// True where it has ended within the time.
bool wait_for(pid_t child, milliseconds time, int& status) {
  constexpr int kPauseMs = 5;
  const auto deadline = std::chrono::steady_clock::now() + time;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    poll(nullptr, 0, kPauseMs);
  }
  return true;
}

}  // namespace

bool run_as_user(uid_t user, gid_t group, const std::function<void()>& act) {
  constexpr milliseconds kTimeLimit{3000}, kKillLimit{1000};
  int status = 0;
  const pid_t child = fork();
  if (child == 0) run_child(user, group, act);
  if (child < 0) return false;
  if (!wait_for(child, kTimeLimit, status)) {
    kill(child, SIGKILL);  // the user may have stopped it, and the step would never end with it
    wait_for(child, kKillLimit, status);
    return false;
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS;
}

}  // namespace torchbridge
