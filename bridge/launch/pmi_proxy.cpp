#include "bridge/launch/pmi_proxy.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <initializer_list>

namespace torchbridge {
namespace {

// From here on only what is safe after a fork of a process with threads.
constexpr int kLauncher = 3, kProgram = 4, kFirstOther = 5;

// The other end reads the whole of it, or is gone.
bool pass_on(int from, int to) {
  char buffer[4096];
  const auto size = read(from, buffer, sizeof buffer);
  if (size <= 0) return false;
  for (ssize_t done = 0; done < size;) {
    const auto sent = send(to, buffer + done, static_cast<std::size_t>(size - done), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    done += sent;
  }
  return true;
}

void say_goodbye() {
  constexpr char kGoodbye[] = "cmd=finalize\n";
  constexpr int kLongestWait = 10'000;  // milliseconds
  if (send(kLauncher, kGoodbye, sizeof kGoodbye - 1, MSG_NOSIGNAL) < 0) return;
  pollfd answer{kLauncher, POLLIN, 0};
  char buffer[256];
  if (poll(&answer, 1, kLongestWait) == 1 && read(kLauncher, buffer, sizeof buffer) < 0) return;
}

void relay() {
  bool program_spoke = false;
  for (;;) {
    pollfd ends[] = {{kLauncher, POLLIN, 0}, {kProgram, POLLIN, 0}};
    if (poll(ends, 2, -1) < 0) continue;  // interrupted
    if (ends[0].revents != 0 && !pass_on(kLauncher, kProgram)) return;
    if (ends[1].revents == 0) continue;
    if (!pass_on(kProgram, kLauncher)) {
      if (!program_spoke) say_goodbye();
      return;
    }
    program_spoke = true;
  }
}

void close_all_others() {
  for (int descriptor = 0; descriptor < kLauncher; ++descriptor) close(descriptor);
  if (syscall(SYS_close_range, kFirstOther, ~0U, 0) == 0) return;
  constexpr long kMost = 65536;  // kernels before 5.9; a limit of billions is not meant to be counted through
  const long limit = sysconf(_SC_OPEN_MAX);
  for (int descriptor = kFirstOther; descriptor < (limit < kMost ? limit : kMost); ++descriptor) close(descriptor);
}

[[noreturn]] void keep(int launcher, int program) {
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCONT, SIGTSTP, SIGALRM, SIGPIPE}) {
    std::signal(signal, SIG_IGN);
  }
  setsid();
  // Out of the way of each other first: either may have the number that the other is to get.
  launcher = fcntl(launcher, F_DUPFD, kFirstOther);
  program = fcntl(program, F_DUPFD, kFirstOther);
  dup2(launcher, kLauncher);
  dup2(program, kProgram);
  close_all_others();
  if (chdir("/") == 0) relay();
  _exit(0);
}

}  // namespace

void start_pmi_proxy(int descriptor) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return;
  const pid_t child = fork();
  if (child == 0) {
    if (fork() != 0) _exit(0);  // nobody's child, so that no wait() of the program's meets it
    keep(descriptor, pair[1]);
  }
  close(pair[1]);
  if (child > 0) {
    while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
    dup2(pair[0], descriptor);  // without close-on-exec
  }
  close(pair[0]);
}

}  // namespace torchbridge
