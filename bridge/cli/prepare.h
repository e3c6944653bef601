// From the environment of this process to that of the program it shall become.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <torchbridge/core/env_map.h>
#include <torchbridge/core/options.h>
#include <torchbridge/core/result.h>
#include <torchbridge/net/socket.h>
#include <torchbridge/task/step_plan.h>
#include <torchbridge/task/task_environment.h>

namespace torchbridge {

struct Prepared {
  Options options;
  // Nothing where RANK and its companions are set already: the program then gets the environment as it is.
  std::optional<StepPlan> plan;
  TaskEnvironment task;
  Socket port;  // on rank 0 MASTER_PORT, for the program to inherit; not open elsewhere
  // Why this rank cannot go on, which the others do not know: the port, its devices, its interface. `task` is empty then.
  std::optional<Error> failure;
};

// `program` will inherit the port; nobody does where it is empty. Under launchers that do not tell everything, all ranks must call it. An error is found
// by every rank alike, or told to all by the one that finds it.
Result<Prepared> prepare(const EnvMap& environment, const Options& options, const std::vector<std::string>& program,
                         std::chrono::milliseconds timeout);

}  // namespace torchbridge
