#include "bridge/start/process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "bridge/base/message_text.h"
#include "bridge/host/cpu_affinity.h"
#include "bridge/host/exec_arguments.h"
#include "bridge/net/socket.h"

namespace torchbridge {
namespace {

std::vector<int> open_descriptors() {
  std::vector<int> descriptors;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    descriptors.push_back(std::atoi(entry.path().filename().c_str()));
  }
  return descriptors;
}

void close_others(int kept, int also_kept) {
  const int low = std::min(kept, also_kept), high = std::max(kept, also_kept);
  const auto close_between = [](int first, int last) {
    if (first > last) return;
    // Linux 5.9 has close_range. Before, the open ones are listed: the limit may be a million.
    if (syscall(SYS_close_range, first, last, 0) == 0) return;
    for (const int descriptor : open_descriptors()) {
      if (descriptor >= first && descriptor <= last) close(descriptor);
    }
  };
  close_between(STDERR_FILENO + 1, low - 1);
  close_between(std::max(low, STDERR_FILENO) + 1, high - 1);
  close_between(std::max(high, STDERR_FILENO) + 1, INT32_MAX);
}

[[noreturn]] void become_child(const ProcessSpec& spec, const ExecArguments& exec, pid_t parent,
                               int report) {
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(EXIT_FAILURE);  // it died before prctl
  if (spec.standard_output >= 0) dup2(spec.standard_output, STDOUT_FILENO);
  if (spec.standard_error >= 0) dup2(spec.standard_error, STDERR_FILENO);
  close_others(report, spec.inherited);
  if (!spec.cpus.empty() || spec.memory_node >= 0) (void)set_affinity(spec.cpus, spec.memory_node);
  setrlimit(RLIMIT_NOFILE, &spec.outer.descriptors);
  pthread_sigmask(SIG_SETMASK, &spec.outer.signal_mask, nullptr);
  if (spec.body) {
    close(report);
    clearenv();
    for (char* entry : exec.variables()) {
      if (entry) putenv(entry);
    }
    const int exit_code = [&]() noexcept {
      return spec.body();
    }();  // an exception ends the child where it is thrown
    std::fflush(nullptr);
    _exit(exit_code);  // the destructors of static objects are the parent's
  }
  const int error = exec.exec();
  (void)!write(report, &error, sizeof error);
  _exit(EXIT_FAILURE);
}

StartFailure cannot_start(const ProcessSpec& spec, int error) {
  if (spec.command.empty()) return start_failure("cannot run the function: ", error);
  return start_failure(formatted("cannot run '{}': ", printable(spec.command.front())), error);
}

}  // namespace

std::variant<pid_t, StartFailure> start_process(const ProcessSpec& spec) {
  const ExecArguments exec(spec.command, spec.environment);
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) return cannot_start(spec, errno);
  const Socket read_end(pipe_ends[0]);
  Socket write_end(pipe_ends[1]);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) become_child(spec, exec, parent, write_end.descriptor());
  if (child < 0) return cannot_start(spec, errno);
  write_end = Socket();
  int error = 0;
  if (read(read_end.descriptor(), &error, sizeof error) != sizeof error) return child;
  waitpid(child, nullptr, 0);
  return cannot_start(spec, error);
}

}  // namespace torchbridge
