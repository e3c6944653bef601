#include "bridge/supervision/signal_sender.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "bridge/host/process_tree.h"

namespace torchbridge {
namespace {

// A process with this name, which waits for its end.
class NamedProcess {
 public:
  explicit NamedProcess(const char* name) : pid_(fork()) {
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      prctl(PR_SET_NAME, name);
      for (;;) pause();
    }
    while (process_name(pid_) != name) {
    }
  }
  ~NamedProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  NamedProcess(const NamedProcess&) = delete;
  NamedProcess& operator=(const NamedProcess&) = delete;
  std::uint32_t pid() const { return static_cast<std::uint32_t>(pid_); }

 private:
  pid_t pid_;
};

TEST(SignalSender, IsKnownByItsName) {
  const NamedProcess slurm("slurmstepd"), systemd("systemd"), other("pkill");
  const std::uint32_t own = getuid();
  const struct {
    std::string what;
    int code;
    std::uint32_t pid, user;
    bool expected;
  } cases[] = {
      {"Slurm's step daemon", SI_USER, slurm.pid(), 0, true},
      {"systemd", SI_USER, systemd.pid(), 0, true},
      {"a user's program", SI_USER, other.pid(), own, false},
      {"a user's program that has ended", SI_USER, 0x7fffffff, own, false},
      {"another user's program that has ended", SI_USER, 0x7fffffff, own + 1, false},
      {"a process of another user outside the PID namespace", SI_USER, 0, own + 1, true},
      {"the kernel, for ctrl-C", SI_KERNEL, 0, own + 1, false},
  };
  for (const auto& c : cases) {
    signalfd_siginfo info{};
    info.ssi_code = c.code;
    info.ssi_pid = c.pid;
    info.ssi_uid = c.user;
    EXPECT_EQ(signals_each_process(info), c.expected) << c.what;
  }
}

}  // namespace
}  // namespace torchbridge
