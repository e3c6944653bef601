#include "trainer_template/runtime/run/kill_when_stopped.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "bridge/host/close_from.h"

namespace torchbridge::train {
namespace {

constexpr int kLooksInLimit = 8;

// By /proc/PID/stat, proc(5): "PID (NAME) STATE ...". Only async-signal-safe calls, here and below:
// another thread may have held any lock when the process was copied.
bool is_stopped(const char* stat_file) {
  std::array<char, 128> text{};
  const int file = open(stat_file, O_RDONLY | O_CLOEXEC);
  const ssize_t size = read(file, text.data(), text.size() - 1);
  close(file);
  if (size <= 0) return false;
  const char* name_end = strrchr(text.data(), ')');
  return name_end != nullptr && strncmp(name_end, ") T", 3) == 0;
}

[[noreturn]] void watch(pid_t watched, const char* stat_file, timespec period) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The watched process's own handlers are not for this one, which ends with it.
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  close_from(0);  // connections and pipes of the watched process end with it
  // Looks are counted, not time: if the machine stands still, neither process has run meanwhile.
  int looks = 0;
  while (getppid() == watched) {
    nanosleep(&period, nullptr);
    looks = is_stopped(stat_file) ? looks + 1 : 0;
    if (looks > kLooksInLimit) kill(watched, SIGKILL);
  }
  _exit(0);
}

}  // namespace

void kill_when_stopped(std::chrono::milliseconds limit) {
  const pid_t watched = getpid();
  std::array<char, 32> stat_file{};
  std::snprintf(stat_file.data(), stat_file.size(), "/proc/%d/stat", watched);
  const std::chrono::nanoseconds period = limit / kLooksInLimit;
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(period);
  // Not fork(): its handlers are others', as those of an MPI that warns of a fork. Where no process
  // can be started, the rank is as without this one.
  if (syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr) == 0)
    watch(watched, stat_file.data(), {whole.count(), (period - whole).count()});
}

}  // namespace torchbridge::train
