#include "trainer_template/runtime/run/kill_when_stopped.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <ctime>

#include "bridge/host/close_from.h"

namespace torchbridge::train {
namespace {

constexpr int kLooksInLimit = 8;
// The terminal's: they stop the watching process with the one that it watches.
constexpr std::array kJobControl = {SIGTSTP, SIGTTIN, SIGTTOU};

// By /proc/PID/stat, proc(5): "PID (NAME) STATE ...". Only async-signal-safe calls, here and below:
// another thread may have held any lock when the process was copied.
bool is_stopped(int stat_file) {
  std::array<char, 128> text{};
  if (pread(stat_file, text.data(), text.size() - 1, 0) <= 0) return false;
  const char* name_end = strrchr(text.data(), ')');
  return name_end != nullptr && strncmp(name_end, ") T", 3) == 0;
}

[[noreturn]] void watch(pid_t watched, int stat_file, timespec period) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigset_t blocked;
  sigfillset(&blocked);
  for (const int stop : kJobControl) {
    signal(stop, SIG_DFL);
    sigdelset(&blocked, stop);
  }
  sigprocmask(SIG_SETMASK, &blocked, nullptr);
  dup2(stat_file, 0);
  close_from(1);  // connections and pipes of the watched process end with it
  // Looks are counted, not time: if the machine stands still, neither process has run meanwhile.
  int looks = 0;
  while (getppid() == watched) {
    nanosleep(&period, nullptr);
    looks = is_stopped(0) ? looks + 1 : 0;
    if (looks > kLooksInLimit) kill(watched, SIGKILL);
  }
  _exit(0);
}

}  // namespace

void kill_when_stopped(std::chrono::milliseconds limit) {
  // Opened here: /proc may be that of another PID namespace, with other numbers.
  const int stat_file = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  if (stat_file < 0) return;
  const pid_t watched = getpid();
  const std::chrono::nanoseconds period = limit / kLooksInLimit;
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(period);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // this process's handlers are not for the child
  // Not fork(): its handlers are others', as those of an MPI that warns of a fork. Without SIGCHLD:
  // it is no child for a wait() of the program. Where no process can be started, the rank is as
  // without this one.
  if (syscall(SYS_clone, 0, nullptr, nullptr, nullptr, nullptr) == 0)
    watch(watched, stat_file, {whole.count(), (period - whole).count()});
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  close(stat_file);
}

}  // namespace torchbridge::train
