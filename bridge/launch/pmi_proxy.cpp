#include "bridge/launch/pmi_proxy.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <initializer_list>

#include "bridge/host/close_from.h"

namespace torchbridge {
namespace {

// From here to run_proxy: only calls that are safe after a fork of a process with threads.
constexpr int kLauncher = 3, kProgram = 4, kFirstOther = 5;

// False when either end is closed.
bool forward(int from, int to) {
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

void send_finalize() {
  constexpr char kFinalize[] = "cmd=finalize\n";
  constexpr int kLongestWait = 10'000;  // milliseconds
  if (send(kLauncher, kFinalize, sizeof kFinalize - 1, MSG_NOSIGNAL) < 0) return;
  pollfd answer{kLauncher, POLLIN, 0};
  char buffer[256];
  if (poll(&answer, 1, kLongestWait) == 1 && read(kLauncher, buffer, sizeof buffer) < 0) return;
}

void relay() {
  bool program_sent = false;
  for (;;) {
    pollfd ends[] = {{kLauncher, POLLIN, 0}, {kProgram, POLLIN, 0}};
    if (poll(ends, 2, -1) < 0) continue;  // interrupted
    if (ends[0].revents != 0 && !forward(kLauncher, kProgram)) return;
    if (ends[1].revents == 0) continue;
    if (!forward(kProgram, kLauncher)) {
      if (!program_sent) send_finalize();
      return;
    }
    program_sent = true;
  }
}

void close_all_others() {
  for (int descriptor = 0; descriptor < kLauncher; ++descriptor) close(descriptor);
  close_from(kFirstOther);
}

[[noreturn]] void run_proxy(int launcher, int program) {
  for (const int signal :
       {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCONT, SIGTSTP, SIGALRM, SIGPIPE}) {
    std::signal(signal, SIG_IGN);
  }
  setsid();
  // First to numbers above: either may have the number that the other is to get.
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
    if (fork() != 0) _exit(0);  // not a child of the program, whose wait() must not return it
    run_proxy(descriptor, pair[1]);
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
