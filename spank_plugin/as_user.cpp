#include "spank_plugin/as_user.h"

#include <grp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "bridge/host/text_file.h"

namespace torchbridge {
namespace {

// True as soon as `fact()` is true, false where it is not within `limit`.
template <class Fact>
bool wait_for(std::chrono::milliseconds limit, Fact fact) {
  constexpr int kPauseMs = 5;
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!fact()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    poll(nullptr, 0, kPauseMs);
  }
  return true;
}

// Without root only the own user is possible, whose groups stay.
bool become(const UserIds& user) {
  uid_t real = 0, effective = 0, saved = 0;
  gid_t real_group = 0, effective_group = 0, saved_group = 0;
  if (geteuid() == 0 && setgroups(0, nullptr) != 0) return false;
  // The child has slurmstepd's memory and descriptors, which are not the user's to read or dump,
  // whatever fs.suid_dumpable is: it is what a new effective id sets, and not what giving up the
  // others does. Until then nobody but root may trace the child, for its other ids are root's.
  constexpr uid_t kSame = -1;
  if (setresgid(user.group, user.group, user.group) != 0 ||
      setresuid(kSame, user.user, kSame) != 0 || prctl(PR_SET_DUMPABLE, 0) != 0 ||
      setresuid(user.user, user.user, user.user) != 0)
    return false;
  if (getresuid(&real, &effective, &saved) != 0 ||
      getresgid(&real_group, &effective_group, &saved_group) != 0)
    return false;
  return real == user.user && effective == user.user && saved == user.user &&
         real_group == user.group && effective_group == user.group && saved_group == user.group;
}

// What the user gives is read here, outside the job's limit of memory. slurmstepd's own
// counts too: the stacks of its threads. Field 6 of /proc/self/statm: "data + stack", in pages.
void limit_memory() {
  constexpr std::size_t kRoom = 256 << 20;
  const auto pages = read_text("/proc/self/statm");
  unsigned long used = 0;
  if (!pages || !*pages || std::sscanf((*pages)->c_str(), "%*u %*u %*u %*u %*u %lu", &used) != 1)
    return;
  const rlim_t most = used * static_cast<unsigned long>(getpagesize()) + kRoom;
  const rlimit limit{most, most};
  setrlimit(RLIMIT_DATA, &limit);
}

[[noreturn]] void run_child(const UserIds& user, const std::function<bool()>& act) noexcept try {
  if (!become(user)) _exit(EXIT_FAILURE);
  limit_memory();
  _exit(act() ? EXIT_SUCCESS : EXIT_FAILURE);
} catch (const std::exception&) {
  _exit(EXIT_FAILURE);
}

}  // namespace

bool run_as_user(const UserIds& user, std::chrono::milliseconds limit,
                 const std::function<bool()>& act) {
  constexpr std::chrono::milliseconds kKillLimit{1000};
  int status = 0;
  pid_t ended = 0;
  const pid_t child = fork();
  if (child == 0) run_child(user, act);
  if (child < 0) return false;
  const auto has_ended = [&] { return (ended = waitpid(child, &status, WNOHANG)) != 0; };
  if (!wait_for(limit, has_ended)) {
    kill(child, SIGKILL);  // the user may have stopped it by SIGSTOP, and the step would wait for
                           // it forever
    wait_for(kKillLimit, has_ended);
    return false;
  }
  return ended == child && WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS;
}

}  // namespace torchbridge
