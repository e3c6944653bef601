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

// Binds this process to CPUs and memory where the options say so, for the program to inherit, and returns the rest: the
// torchrun's variables, less what the user exported, and what is this task's own: devices, threads, interface, error
// file, and TORCHBRIDGE_LISTEN_FD where `reserved_port` is open, which the program must then inherit. Where a rule
// divides the node among its tasks and the launcher is not Slurm, the tasks of the node ask each other. An error may be
// found by this task alone. `program`: its name and arguments as far as they are known. PET_* are set only where they
// name torchrun, and neither
// --standalone nor --nnodes=1: an agent that is to be alone would wait for other nodes.
Result<TaskEnvironment> task_environment(const StepPlan& plan, const EnvMap& environment, const Socket& reserved_port,
                                         const std::vector<std::string>& program);

}  // namespace torchbridge
