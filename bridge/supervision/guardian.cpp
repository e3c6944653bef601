#include "bridge/supervision/guardian.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstring>
#include <deque>
#include <filesystem>
#include <string>
#include <vector>

#include "bridge/base/message_text.h"
#include "bridge/base/signal_names.h"
#include "bridge/host/process_tree.h"
#include "bridge/step/failure.h"
#include "bridge/supervision/console_writer.h"
#include "bridge/supervision/signal_descriptor.h"
#include "bridge/supervision/signal_sender.h"

namespace torchbridge {
namespace {

using Clock = std::chrono::steady_clock;

// What a user or a launcher sends to the process that they started.
const std::vector<int> kForwarded = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

void report_killed(int wait_status, pid_t agent) {
  print_without_waiting(
      formatted("torchbridge: the agent (pid {}) was killed by {}: its workers were ended", agent,
                signal_text(WTERMSIG(wait_status))));
}

int cannot_start(const std::string& reason) {
  std::fprintf(stderr, "torchbridge: %s\n", reason.c_str());
  return EXIT_FAILURE;
}

// Of the blocked signals it takes SIGCHLD only.
void wait_for_child(Clock::time_point deadline) {
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  const auto rest =
      std::max(std::chrono::nanoseconds(deadline - Clock::now()), std::chrono::nanoseconds(0));
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(rest);
  const timespec time{seconds.count(), (rest - seconds).count()};
  (void)sigtimedwait(&child, nullptr, &time);
}

void remove_folder_named_in(int pipe) {
  char path[PIPE_BUF];
  const ssize_t size = read(pipe, path, sizeof path);
  std::error_code ignored;
  if (size > 0)
    std::filesystem::remove_all(std::string(path, static_cast<std::size_t>(size)), ignored);
}

// As a shell's kill: an agent that is stopped (SIGSTOP) would not read the signal.
void send_signal(pid_t agent, int signal) {
  kill(agent, signal);
  if (signal != SIGUSR1 && signal != SIGUSR2) kill(agent, SIGCONT);
}

// The signals for the agent that are not yet due, the first one first.
class LateSignals {
 public:
  void add(int signal) { waiting_.push_back({signal, Clock::now() + kSignalSpread}); }
  void send_due(pid_t agent) {
    while (!waiting_.empty() && waiting_.front().time <= Clock::now()) {
      send_signal(agent, waiting_.front().signal);
      waiting_.pop_front();
    }
  }
  int milliseconds_left() const {  // as poll() takes it
    if (waiting_.empty()) return -1;
    const auto rest =
        std::chrono::ceil<std::chrono::milliseconds>(waiting_.front().time - Clock::now());
    return std::max(static_cast<int>(rest.count()), 0);
  }

 private:
  struct Late {
    int signal;
    Clock::time_point time;
  };
  std::deque<Late> waiting_;
};

// Waits for the agent's end; the exit status as waitpid gives it.
int wait_for_agent(pid_t agent, SignalDescriptor& signals) {
  for (LateSignals late;;) {
    pollfd ready{signals.descriptor(), POLLIN, 0};
    poll(&ready, 1, late.milliseconds_left());
    late.send_due(agent);
    while (const auto signal = signals.next()) {
      if (signal->ssi_signo != SIGCHLD) {
        const int number = static_cast<int>(signal->ssi_signo);
        signals_each_process(*signal) ? late.add(number) : send_signal(agent, number);
        continue;
      }
      int status = 0;
      for (pid_t ended = 0; (ended = waitpid(-1, &status, WNOHANG)) > 0;) {
        if (ended == agent) return status;
      }
    }
  }
}

}  // namespace

std::vector<int> kill_descendants(const std::vector<int>& kept) {
  const auto deadline = Clock::now() + kKillDeadline;
  for (;;) {
    std::vector<int> left;
    bool has_ended = false;
    for (const int child : children_of(getpid())) {
      if (std::find(kept.begin(), kept.end(), child) != kept.end()) continue;
      siginfo_t ignored{};
      // In a PID namespace of its own beside the /proc of another, the number is that of a
      // stranger.
      if (waitid(P_PID, static_cast<id_t>(child), &ignored, WEXITED | WNOHANG | WNOWAIT) != 0)
        continue;
      kill(child, SIGKILL);
      if (waitpid(child, nullptr, WNOHANG) == 0) {
        left.push_back(child);
      } else {
        has_ended = true;  // its own children are this process's now
      }
    }
    if (left.empty() && !has_ended) return {};
    if (Clock::now() >= deadline) return left;
    if (has_ended) continue;
    wait_for_child(deadline);
  }
}

int run_guarded(const std::vector<int>& forwarded, bool ends_process,
                const std::function<int(const GuardianLink&)>& agent) {
  std::vector<int> handled = kForwarded;
  handled.insert(handled.end(), forwarded.begin(), forwarded.end());
  handled.push_back(SIGCHLD);
  auto signals = SignalDescriptor::open(handled);
  int ends[2], folder[2];
  if (!signals || pipe2(ends, O_CLOEXEC) != 0 || pipe2(folder, O_CLOEXEC | O_NONBLOCK) != 0) {
    return cannot_start(signals ? formatted("cannot open a pipe: {}", std::strerror(errno))
                                : signals.error().message);
  }
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[1]);
    close(folder[0]);
    // Out of the terminal's foreground group: the guardian forwards ctrl-C, which would otherwise
    // come twice.
    setpgid(0, 0);
    pthread_sigmask(SIG_SETMASK, &signals->outer_mask(), nullptr);
    const int exit_code = [&]() noexcept {
      return agent({ends[0], folder[1]});
    }();  // an exception ends it as a signal does
    std::fflush(nullptr);
    _exit(exit_code);
  }
  close(ends[0]);
  close(folder[1]);
  if (child < 0) return cannot_start(formatted("cannot start the agent: {}", std::strerror(errno)));
  const int status = wait_for_agent(child, *signals);
  if (!WIFEXITED(status)) {
    kill_descendants();
    remove_folder_named_in(folder[0]);
    report_killed(status, child);
  }
  if (ends_process) signals->keep_blocked();
  return exit_code_of(status);
}

}  // namespace torchbridge
