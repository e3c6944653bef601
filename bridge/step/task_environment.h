// The complete environment of one task.
#pragma once

#include <string>
#include <vector>

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"
#include "bridge/net/socket.h"
#include "bridge/step/step_plan.h"

namespace torchbridge {

struct TaskEnvironment {
  std::vector<Variable> variables;
  std::vector<std::string> notes;  // for the user, one line each
};

// Binds this process to CPUs and memory where the options require it, for the program to inherit,
// and returns the variables: torchrun's, without those that the user exported, and this task's own:
// devices, threads, interface, error file, and TORCHBRIDGE_LISTEN_FD where `reserved_port` is open,
// which the program must then inherit. Collective over the tasks of the node where a rule divides
// the node among them and the launcher is not Slurm. An error that other tasks may not have is
// only_here. `program`: its name and arguments as far as they are known. PET_* are set only where
// these start torchrun without --standalone and --nnodes=1: an agent meant to be alone would wait
// for other nodes.
Result<TaskEnvironment> task_environment(const StepPlan& plan, const EnvMap& environment,
                                         const Socket& reserved_port,
                                         const std::vector<std::string>& program);

}  // namespace torchbridge
