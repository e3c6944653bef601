#include "bridge/supervision/signal_sender.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>

#include "bridge/host/process_tree.h"

namespace torchbridge {
namespace {

// A daemon of root is, from a PID namespace, and where /proc is mounted with hidepid. A `kill` that
// has ended is not.
bool is_hidden(pid_t process) { return process == 0 || (kill(process, 0) != 0 && errno == EPERM); }

}  // namespace

bool signals_each_process(const signalfd_siginfo& signal) {
  if (signal.ssi_code > 0) return false;  // the kernel sent it, as for ctrl-C
  const std::string name = process_name(static_cast<int>(signal.ssi_pid));
  if (name.empty())
    return signal.ssi_uid != getuid() && is_hidden(static_cast<pid_t>(signal.ssi_pid));
  return name == "slurmstepd" || name == "systemd";
}

}  // namespace torchbridge
