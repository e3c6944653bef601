// Starts child processes.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <csignal>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"
#include "bridge/binding/cpu_set.h"
#include "bridge/host/exec_arguments.h"

namespace torchbridge {

// What the agent has changed for itself, as it was before.
struct OuterState {
  sigset_t signal_mask{};
  rlimit descriptors{};  // the limit of open ones
};

struct ProcessSpec {
  // The program, looked up in PATH as a shell does, and its arguments.
  std::vector<std::string> command;
  // Instead of a command: runs in the child, and its value is the exit code.
  std::function<int()> body;
  EnvMap environment;
  int standard_output = -1, standard_error = -1;  // descriptors; -1: those of this process
  int inherited = -1;    // one more descriptor that the child keeps, under the same number
  CpuSet cpus;           // it runs on these only; empty: as this process
  int memory_node = -1;  // memory of this NUMA node is preferred; -1: as this process
  OuterState outer;      // of the child
};

// A child in a session of its own, so that a signal to its process group reaches what it starts,
// and ctrl-C of the terminal does not reach it. It has no descriptors of this process but the
// standard ones and `inherited`, and gets SIGKILL when this process dies. Returns when the program
// runs, or an error with the program's name and the reason. REQUIRES: the process has one thread.
std::variant<pid_t, StartFailure> start_process(const ProcessSpec& spec);

}  // namespace torchbridge
